"""Reads JSON of a known shape: any bytes give a value of this shape or one error, never one of another kind.

A shape is a type: `str`, `int`, `float`, `bool`, `None`, `Any`, `list[…]`, `tuple[…]` (a list of that length; of
any length if it ends with `...`), `dict[str, …]`, a TypedDict, a Literal, or a union of them.
"""

import json
import re
import reprlib
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from rerank.utils.errors import UserError

SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
    list: "a list",
    tuple: "a list",
    dict: "an object",
}
LONGEST_INTEGER = 2**63
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


def parse_json(text: bytes | str, shape: Any = Any) -> Any:
    """The value of a JSON text, of this shape.

    Raises ValueError, whose message is one line, for bytes that are not UTF-8, a text that is not JSON or has more
    brackets in each other than Python can read, half of a surrogate pair, and a value of another shape.
    """
    try:
        text = text.decode().removeprefix("\ufeff") if isinstance(text, bytes) else text
        value = json.loads(text)
        if SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start : error.end])
        raise ValueError(f"expected Unicode text, got {half}, half of a surrogate pair") from None
    except ValueError as error:  # a UnicodeDecodeError is one too
        raise ValueError(f"not JSON ({error})") from None
    except RecursionError:
        raise ValueError("not JSON that can be read (too many brackets in each other)") from None
    check_shape(value, shape)
    return value


def read_json(path: str | Path, shape: Any, remedy: str) -> Any:
    """The value of a JSON file, of this shape; raises UserError, which ends with `remedy`, for any other file."""
    try:
        return parse_json(Path(path).read_bytes(), shape)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; {remedy}") from error
    except ValueError as error:
        raise UserError(f"{path}: {error}; {remedy}") from error


def read_json_lines(path: str | Path, shape: Any, remedy: str) -> Iterator[Any]:
    """The value of each line of a file, of this shape; raises UserError, which ends with `remedy`, for any other."""
    try:
        with Path(path).open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    value = parse_json(line, shape)
                except ValueError as error:
                    raise UserError(f"{path}:{number}: {error}; {remedy}") from error
                yield value
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; {remedy}") from error


def shown(value: object) -> str:
    """A value for a message: short, however long it is and however deep its brackets are.

    >>> shown("a" * 1000)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaa...aaaaaaaaaaaaaaaaaaaaaaaaaaaa'"
    """
    return _SHORT.repr(value)


def keys_shown(record: Iterable[str]) -> str:
    """The keys of an object for a message: short, however many and however long they are.

    >>> keys_shown({"_id": 1, "title": 2})
    '_id, title'
    """
    text = ", ".join(record)
    return text if len(text) <= 200 else f"{text[:200]}…"


def check_shape(value: Any, shape: Any, place: str = "") -> None:
    """Raises ValueError, which names the place of the difference, if a value does not have this shape.

    An `int` has at most 64 bits; a `float` may be written as a whole number.

    >>> check_shape({"name": "1", "train": ["q1", 2]}, dict[str, str | list[str]])
    Traceback (most recent call last):
    ValueError: expected text or a list of text under 'train', got ['q1', 2]
    >>> check_shape({"run": ["a.run", 2]}, dict[str, tuple[str, ...]])
    Traceback (most recent call last):
    ValueError: expected a list of text under 'run', got ['a.run', 2]
    """
    if not _fits(value, shape):
        _explain(value, shape, place)


def _fits(value: Any, shape: Any) -> bool:
    kind, inner = get_origin(shape) or shape, get_args(shape)
    if shape is Any:
        return True
    if kind in (Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if kind is Literal:
        return isinstance(value, str) and value in inner
    if is_typeddict(shape):
        return isinstance(value, dict) and not _unfit_key(value, shape)
    if kind is float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and (isinstance(value, float) or abs(value) <= sys.float_info.max)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LONGEST_INTEGER
    if kind is tuple and inner[1:] == (...,):
        return isinstance(value, list) and all(_fits(item, inner[0]) for item in value)
    if kind is tuple:
        return isinstance(value, list) and len(value) == len(inner) and all(map(_fits, value, inner))
    if shape is None or not isinstance(value, kind):
        return shape is None and value is None
    if kind is list and inner:
        return all(_fits(item, inner[0]) for item in value)
    if kind is dict and inner:
        return all(_fits(item, inner[1]) for item in value.values())
    return True


def _unfit_key(value: dict[str, Any], shape: Any) -> str | None:
    """The first key of a TypedDict that is missing or does not have its shape."""
    hints = get_type_hints(shape)
    missing = (key for key in hints if key in shape.__required_keys__ and key not in value)
    return next(missing, None) or next(
        (key for key in hints if key in value and not _fits(value[key], hints[key])), None
    )


def _explain(value: Any, shape: Any, place: str) -> None:
    """Raises ValueError for the innermost difference that can be named."""
    if isinstance(value, dict) and (is_typeddict(shape) or get_origin(shape) is dict):
        if is_typeddict(shape):
            key = _unfit_key(value, shape)
            inner = get_type_hints(shape)[key]  # type: ignore[index]  # as the value does not fit
        else:
            inner = get_args(shape)[1]
            key = next(key for key in value if not _fits(value[key], inner))
        under = f" under {shown(key)}{place}"
        if key not in value:
            raise ValueError(f"expected {_in_words(inner)}{under}, got none")
        _explain(value[key], inner, under)
    raise ValueError(f"expected {_in_words(shape)}{place}, got {shown(value)}")


def _in_words(shape: Any) -> str:
    """A shape in words.

    >>> _in_words(dict[str, float] | None)
    'an object of a number or null'
    """
    kind, inner = get_origin(shape) or shape, get_args(shape)
    if kind in (Union, types.UnionType):
        return " or ".join(map(_in_words, inner))
    if shape is Any:
        return "a value"
    if kind is Literal:
        return " or ".join(inner)
    if kind is list and inner:
        return f"a list of {_in_words(inner[0])}"
    if kind is tuple and inner[1:] == (...,):
        return f"a list of {_in_words(inner[0])}"
    if kind is tuple:
        return f"a list of {len(inner)}"
    if kind is dict and inner and inner[1] is not Any:
        return f"an object of {_in_words(inner[1])}"
    return WORDS.get(type(None) if kind is None else kind, "an object")
