"""Strategies of hypothesis for what a damaged or hostile file may hold, and the settings of these tests.

RERANK_EXAMPLES=2000 tries more than the suite does; with it, the examples are drawn anew each time.
"""

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from rerank.utils.errors import UserError

EXAMPLES = int(os.environ.get("RERANK_EXAMPLES", "0"))
DEADLINE = 10_000
"""Milliseconds that a reader may take for one file, with RERANK_EXAMPLES; the suite asserts no time."""

HOSTILE = [
    b"",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\x1f\x8b",
    b"PK\x03\x04",
    b"\x93NUMPY\x01\x00",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"[]",
    b"{}",
    b"[[]]",
    b"null",
    b"NaN",
    b'"\\ud800"',
    b"9" * 5_000,
    b"1e999",
    b"a = " + b"[" * 50_000,
    b"\n" * 100,
    b"q1 0 d1 " + b"9" * 400,
]
"""Contents that are wrong for most files."""

bounded = settings(
    max_examples=EXAMPLES or 40,
    derandomize=not EXAMPLES,
    deadline=DEADLINE if EXAMPLES else None,
    database=None,
    suppress_health_check=list(HealthCheck),
)

numbers = st.integers() | st.just(10**400) | st.just(-1) | st.floats()
texts = st.text(max_size=8) | st.sampled_from(["", "\ud800", "a\0b", "a\nb", "a b", "x" * 300])
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def damaged(good: bytes) -> st.SearchStrategy[bytes]:
    """Any bytes, or a good file with a part cut, doubled, replaced or inserted."""
    places = st.integers(0, len(good))

    def change(first: int, second: int, new: bytes) -> bytes:
        return good[: min(first, second)] + new + good[max(first, second) :]

    pieces = st.binary(max_size=8) | st.sampled_from(HOSTILE[:6] + HOSTILE[9:])
    small = st.tuples(places, st.integers(0, 4), pieces).map(
        lambda drawn: change(drawn[0], drawn[0] + drawn[1], drawn[2])
    )
    return small | st.builds(change, places, places, pieces) | st.binary(max_size=60) | st.sampled_from(HOSTILE)


@st.composite
def damaged_json(draw: Callable[[Any], Any], good: Any) -> bytes:
    """The JSON of a good value in which a part is another value, or is missing; or bytes as of `damaged`."""
    if draw(st.integers(0, 2)) == 0:
        return draw(damaged(json.dumps(good).encode()))
    holder = [copy.deepcopy(good)]
    parent, key = holder, 0
    while isinstance(parent[key], dict | list) and parent[key] and draw(st.integers(0, 4)):
        parent = parent[key]
        key = draw(st.sampled_from(list(parent) if isinstance(parent, dict) else range(len(parent))))
    if parent is not holder and draw(st.booleans()):
        del parent[key]
    else:
        parent[key] = draw(values)
    return json.dumps(holder[0]).encode()


def value_or_error(read: Callable[[Path], Any], path: Path, content: bytes) -> Any:
    """What a reader makes of a file: a value, or a UserError in one line that names the file; None for the latter."""
    path.write_bytes(content)
    message = ""
    try:
        return read(path)
    except UserError as error:
        message = str(error)
    except Exception as error:  # so that hypothesis shows the bytes
        pytest.fail(f"{type(error).__name__}: {str(error)[:200]}")
    assert path.parent.name in message, message
    assert len(message) < 10_000, "a message of this length hides what is wrong"
    return None
