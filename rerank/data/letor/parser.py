"""Parses lines of SVMlight text with query ids and `# docid =` comments into arrays, many lines at a time."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv

from rerank.data.letor.line_errors import DOC_ID, LABEL, LARGEST_INDEX, LONGEST_ID, LineError, first_error

BLANKS = bytes.maketrans(b"\t\r\v\f", b"    ")


class Lines(NamedTuple):
    """The contents of some lines; a row is a line with a document, which blank and comment lines do not have.

    length: lines; numbers, labels: (rows,) int32, a row's line from 0 and its label; queries: the first row and the id
    of each query in turn; doc_ids: one for each row, b"" if it has none; sizes: (rows,) int32, the number of features
    of a row; features, values: (values,) int16 and float32, row by row, each feature's index and value.
    """

    length: int
    numbers: np.ndarray
    labels: np.ndarray
    queries: list[tuple[int, str]]
    doc_ids: list[bytes]
    sizes: np.ndarray
    features: np.ndarray
    values: np.ndarray


def parse(text: bytes) -> Lines | LineError:
    """Parses whole lines; returns the first invalid line as a LineError."""
    if any(blank in text for blank in (b"\t", b"\r", b"\v", b"\f")):
        text = text.translate(BLANKS)
    lines = text.removesuffix(b"\n").split(b"\n")
    try:
        return _read(lines)
    except ValueError as error:  # pyarrow's ArrowInvalid is one
        line_error = first_error(lines)
        if line_error is None:
            raise AssertionError(f"lines that cannot be parsed have a first invalid one: {error}") from error
        return line_error


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
            raise ValueError("no id, or one that is too long")
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
        raise ValueError("no query")
    b"\n".join(doc_ids).decode()  # all at once: are they UTF-8?
    known = {label: _whole(label) for label in set(labels)}
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


def _whole(label: bytes) -> int:
    if not LABEL.fullmatch(label):
        raise ValueError("no whole number")
    return int(label.partition(b".")[0])


def _pairs(features: bytes) -> tuple[np.ndarray, np.ndarray]:
    """`index:value index:value …` as a CSV file of two columns, which pyarrow reads several times faster than numpy."""
    if b"  " in features or features[:1] == b" " or features[-1:] == b" ":
        features = b" ".join(features.split())
    if not features:
        return np.zeros(0, np.int32), np.zeros(0, np.float32)
    if b"x" in features or b"X" in features or features[:1] == b"-" or b" -" in features:
        raise ValueError("pyarrow reads 0x1A and -0 as an index")
    table = csv.read_csv(
        pa.py_buffer(features.replace(b" ", b"\n")),
        csv.ReadOptions(use_threads=False, column_names=["index", "value"], block_size=len(features) + 1),
        csv.ParseOptions(delimiter=":", quote_char=False, double_quote=False, ignore_empty_lines=False),
        csv.ConvertOptions(column_types={"index": pa.int32(), "value": pa.float32()}, null_values=[], check_utf8=False),
    )
    return table["index"].to_numpy(), table["value"].to_numpy()


def _check(indices: np.ndarray, values: np.ndarray, sizes: np.ndarray) -> None:
    """Raises ValueError if an index is out of range or order, or a value is not finite."""
    falls = indices[1:] <= indices[:-1]
    starts = np.cumsum(sizes, dtype=np.int64)[:-1]
    falls[starts[(starts > 0) & (starts < len(indices))] - 1] = False
    if (indices > LARGEST_INDEX).any() or falls.any() or not np.isfinite(values).all():
        raise ValueError("an index or a value")
