"""Parses lines of SVMlight text with query ids and `# docid =` comments into arrays, many lines at a time."""

import re
from bisect import bisect_left
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rerank.data.arrow import BLANKS, read_columns, to_numpy

LINE = "label qid:QUERY index:value … # docid = DOCUMENT"
LABEL = re.compile(rb"[-+]?[0-9]{1,9}(?:\.0*)?")
DOC_ID = re.compile(rb"\bdocid *= *([^ \0]*)")
LARGEST_INDEX = 9_999  # rows are stored dense, and a row with this index takes 40 kB
LONGEST_ID = 1_000  # bytes; every document id of a file is stored with the bytes of the longest one
FEATURES = f"index:value with indices from 0 to {LARGEST_INDEX:,} that rise and finite values (float32)"
SHOWN = 60  # bytes of an invalid line in a message


class Lines(NamedTuple):
    """The contents of some lines; a row is a line with a document, not a blank or comment line.

    length: number of lines; numbers, labels: (rows,) int32, line number from 0 and label of a row; queries: first row
    and id of each query, in order; doc_ids: one per row, b"" for a row without one; sizes: (rows,) int32, number of
    features of a row; features, values: (values,) int16 and float32, index and value of each feature, row by row.
    """

    length: int
    numbers: np.ndarray
    labels: np.ndarray
    queries: list[tuple[int, str]]
    doc_ids: list[bytes]
    sizes: np.ndarray
    features: np.ndarray
    values: np.ndarray


class LineError(NamedTuple):
    """An invalid line: its number from 0, what was expected, and how the line begins."""

    line: int
    expected: str
    got: str


def parse(text: bytes) -> Lines | LineError:
    """Parses whole lines; returns the first invalid line as a LineError."""
    lines = text.translate(BLANKS).removesuffix(b"\n").split(b"\n")
    try:
        return _read(lines)
    except ValueError:  # lines are valid together if each line is valid, so bisection finds the first error
        number = bisect_left(range(1, len(lines)), True, key=lambda count: _error(lines[:count]) != "")
        got = lines[number][:SHOWN].decode(errors="backslashreplace")
        return LineError(number, f"{_error([lines[number]])}, as in `{LINE}`", repr(got))


def _error(lines: list[bytes]) -> str:
    """The expected text at the first error; "" if the lines are valid."""
    try:
        _read(lines)
    except UnicodeDecodeError:
        return "UTF-8"
    except ValueError as error:
        return str(error)
    return ""


def _read(lines: list[bytes]) -> Lines:
    numbers: list[int] = []
    labels: list[bytes] = []
    queries: list[tuple[int, bytes]] = []
    doc_ids: list[bytes] = []
    features: list[bytes] = []
    query = None
    for number, line in enumerate(lines):
        content, _, comment = line.partition(b"#")
        match = DOC_ID.search(comment) if comment else None
        if match and not 0 < len(match[1]) <= LONGEST_ID:
            raise ValueError(f"a document id of at most {LONGEST_ID:,} bytes after `docid =`")
        words = content.split(None, 2)
        if not words:
            continue
        if words[1:2] != [query]:
            query = words[1] if len(words) > 1 else b""
            queries.append((len(numbers), query))
        features.append(b"".join(words[2:]).rstrip())
        numbers.append(number)
        labels.append(words[0])
        doc_ids.append(match[1] if match else b"")
    if not all(query.startswith(b"qid:") and len(query) > 4 for _, query in queries):
        raise ValueError("qid:QUERY after the label")
    b"\n".join(doc_ids).decode()  # raises UnicodeDecodeError unless all are UTF-8
    if not all(map(LABEL.fullmatch, set(labels))):
        raise ValueError("a whole number of at most 9 digits as label")
    known = {label: int(label.partition(b".")[0]) for label in set(labels)}
    sizes = np.array([text.count(b":") for text in features], dtype=np.int32)
    indices, values = _pairs(b" ".join(features))
    _check(indices, values, sizes)
    return Lines(
        len(lines),
        np.array(numbers, dtype=np.int32),
        np.array([known[label] for label in labels], dtype=np.int32),
        [(row, query[4:].decode()) for row, query in queries],
        doc_ids,
        sizes,
        indices.astype(np.int16),
        values,
    )


def _pairs(features: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Parses `index:value index:value …` as CSV with pyarrow, which is several times faster than numpy."""
    if b"  " in features or features[:1] == b" " or features[-1:] == b" ":
        features = b" ".join(features.split())
    if not features:
        return np.zeros(0, np.int32), np.zeros(0, np.float32)
    if b"x" in features or b"X" in features or features[:1] == b"-" or b" -" in features:
        raise ValueError(FEATURES)  # pyarrow reads 0x1A and -0 as an index
    try:
        types = {"index": pa.int32(), "value": pa.float32()}
        table = read_columns(features.replace(b" ", b"\n"), ":", list(types), types)
    except pa.ArrowInvalid as error:
        raise ValueError(FEATURES) from error
    return to_numpy(table["index"]), to_numpy(table["value"])


def _check(indices: np.ndarray, values: np.ndarray, sizes: np.ndarray) -> None:
    """Raises ValueError if an index is out of range or order, or a value is not finite."""
    falls = indices[1:] <= indices[:-1]
    starts = np.cumsum(sizes, dtype=np.int64)[:-1]
    falls[starts[(starts > 0) & (starts < len(indices))] - 1] = False
    if (indices > LARGEST_INDEX).any() or falls.any() or not np.isfinite(values).all():
        raise ValueError(FEATURES)
