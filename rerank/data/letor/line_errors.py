"""The exact form of an SVMlight line, checked line by line: slow, only for text that `parser.parse` could not read."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from rerank.data.run_scores import FLOAT32_MAX

LARGEST_INDEX = 9_999
"""Rows are stored dense: this one is 40 kB."""
LINE = "label qid:QUERY index:value … # docid = DOCUMENT"
LABEL = re.compile(rb"[-+]?[0-9]{1,9}(?:\.0*)?")
DOC_ID = re.compile(rb"\bdocid *= *([^ \0]*)")
LONGEST_ID = 1_000
"""Bytes of a document id: all ids of a file are stored with as many bytes as its longest."""
FEATURE = re.compile(rb"([0-9]+):([-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?|nan|inf|infinity))", re.I)
DIGITS = 20
"""Of a feature's index that are read: more than the largest has, and fewer than the 4,300 that Python converts."""


class LineError(NamedTuple):
    """An invalid line: its number from 0, what was expected and what was got."""

    line: int
    expected: str
    got: str


def first_error(lines: Iterable[bytes]) -> LineError | None:
    """The first invalid line, or None; the only white space is spaces."""
    for number, line in enumerate(lines):
        content, _, comment = line.partition(b"#")
        error = _content_error(content.split()) or _comment_error(comment)
        if error:
            return LineError(number, *error)
    return None


def _content_error(words: list[bytes]) -> tuple[str, str] | None:
    if not words:
        return None
    if not LABEL.fullmatch(words[0]):
        return "a whole number of at most 9 digits as label", quote(words[0])
    features = words[1:]
    if not features or not features[0].startswith(b"qid:") or features[0] == b"qid:":
        got = quote(features[0]) if features else "the end of the line"
        return f"qid:QUERY after the label, as in `{LINE}`", got
    if _text(features[0]) is None:
        return "a query id in UTF-8", quote(features[0])
    last = -1
    for feature in features[1:]:
        match = FEATURE.fullmatch(feature)
        if not match:
            return f"index:value, as in `{LINE}`", quote(feature)
        index = int(match[1][:DIGITS])
        if index > LARGEST_INDEX:
            return f"a feature index from 0 to {LARGEST_INDEX:,}", quote(feature)
        if index <= last:
            return f"feature indices that rise, so one above {last}", quote(feature)
        if not -FLOAT32_MAX <= float(match[2]) <= FLOAT32_MAX:
            return f"a finite value (float32) of feature {index}", quote(match[2])
        last = index
    return None


def _comment_error(comment: bytes) -> tuple[str, str] | None:
    match = DOC_ID.search(comment)
    if match and not 0 < len(match[1]) <= LONGEST_ID:
        return f"a document id of at most {LONGEST_ID:,} bytes after `docid =`", quote(b"#" + comment)
    if match and _text(match[1]) is None:
        return "a document id in UTF-8", quote(match[1])
    return None


def _text(name: bytes) -> str | None:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None


def quote(text: bytes) -> str:
    """Some text of a file for a message, shortened if it is long."""
    return repr(text[:60].decode(errors="backslashreplace") + ("…" if len(text) > 60 else ""))
