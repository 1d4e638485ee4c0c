"""The lines of TREC runs and qrels, a block at a time: pyarrow parses plain lines, and others are made plain."""

from bisect import bisect_left
from codecs import BOM_UTF8
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from rerank.data.arrow import BLANKS, read_columns, to_numpy
from rerank.data.text_lines import BLOCK, read_blocks, size_of
from rerank.data.types import FLOAT32_MAX
from rerank.utils.errors import UserError
from rerank.utils.progress import progress

MANY = 256  # blocks whose reading shows a progress bar
TEXT = pa.dictionary(pa.int32(), pa.string())


class Form(NamedTuple):
    """The columns of a line, the places of the document and of the value among them, and what the value is."""

    line: str
    document: int
    value: int
    expected: str
    kind: pa.DataType


RUN = Form("query_id Q0 doc_id rank score tag", 2, 4, "a finite score (float32)", pa.float64())
QRELS = Form("query_id 0 doc_id relevance", -2, -1, "an integer relevance", pa.int32())
BEIR = Form("query-id corpus-id score", -2, -1, "an integer relevance", pa.int32())


def trec_tables(path: str | Path, form: Form) -> Iterator[pa.Table]:
    """The lines of a run (`RUN`) or of judgments (`QRELS`; `BEIR` is recognised), gzipped or not, in tables.

    A table has the columns query (dictionary-encoded), document and value; the lines are in the file's order. Columns
    of the file are separated by any white space, and empty lines do not count. Raises UserError with file and line for
    a malformed line, and for a file that is missing, damaged or empty.
    """
    blocks = read_blocks(path, f"lines of `{form.line}`")
    first = b"".join(islice(blocks, 2))  # the last line may be a block of its own, if it does not end in \n
    form = _form_of_qrels(first) if form is QRELS else form
    number, found = 1, False
    count = -(-size_of(path) // BLOCK)
    for block in progress(chain([first], blocks), count, f"reading {Path(path).name}", show=count > MANY):
        table = _plain_lines(block, form) or _other_lines(path, form, block, number)
        number += block.count(b"\n")
        if table is not None:
            found = True
            yield table
    if not found:
        raise UserError(f"{path}: empty file; expected lines of `{form.line}`")


def fail_repeated(path: str | Path, form: Form, query_id: str, doc_id: str) -> NoReturn:
    """Raises UserError for a document that a query has on several lines: for the first that differs, if one does."""
    query, document, found = query_id.encode(), doc_id.encode(), list[tuple[int, str]]()
    blocks = read_blocks(path, f"lines of `{form.line}`")
    lines = chain.from_iterable(block.removesuffix(b"\n").split(b"\n") for block in blocks)
    for number, line in enumerate(lines, 1):
        columns = line.split()
        if columns[:1] == [query] and columns[form.document] == document:
            found.append((number, columns[form.value].decode()))
    (_, first), *others = found
    number, value = next((other for other in others if other[1] != first), others[0])
    once = f"one line of document {doc_id} for query {query_id}"
    raise UserError(f"{path}:{number}: expected {once}, got {first} and {value}")


def _form_of_qrels(block: bytes) -> Form:
    """BEIR's three columns, if there is its header line or three columns between tabs; else TREC's four."""
    first = block.partition(b"\n")[0]
    words = first.split()
    return BEIR if words[2:] == [b"score"] or (len(words) == 3 and b"\t" in first.strip()) else QRELS


def _plain_lines(block: bytes, form: Form) -> pa.Table | None:
    """The lines of a block; None if one is invalid, or has anything but single blanks between its columns."""
    text = block.replace(b"\r\n", b"\n").translate(BLANKS)
    characters = np.frombuffer(text, np.uint8)
    blank = (characters == ord(" ")) | (characters == ord("\n"))
    if text.startswith((b" ", b"\n")) or text.endswith(b" ") or (blank[1:] & blank[:-1]).any():
        return None
    return _parse(text, form)


def _other_lines(path: str | Path, form: Form, block: bytes, number: int) -> pa.Table | None:
    """The lines of any block, of which `number` is the first; None if all are empty; UserError for an invalid one."""
    if block.isspace():  # millions of empty lines at once
        return None
    numbers: list[int] = []
    lines: list[bytes] = []
    for place, line in enumerate(block.removesuffix(b"\n").split(b"\n"), number):
        columns = line.split()
        if columns and (form is not BEIR or columns[2:] != [b"score"]):  # the header
            numbers.append(place)
            lines.append(b" ".join(columns))
    table = _parse(b"\n".join(lines), form) if lines else None
    if table is None and lines:  # some lines are valid together if each of them is
        first = bisect_left(range(1, len(lines)), True, key=lambda n: _parse(b"\n".join(lines[:n]), form) is None)
        got = repr(lines[first].decode(errors="backslashreplace")[:200])
        raise UserError(f"{path}:{numbers[first]}: expected `{form.line}` with {form.expected}, got {got}")
    return table


def _parse(text: bytes, form: Form) -> pa.Table | None:
    """Lines of columns between single spaces as a table; None if one is invalid."""
    if b"\0" in text:
        return None
    names = [str(place) for place in range(len(form.line.split()))]
    query, document, value = names[0], names[form.document], names[form.value]
    try:
        # pyarrow skips one BOM, which may be a part of a query id.
        table = read_columns(BOM_UTF8 + text, " ", names, {query: TEXT, document: pa.large_string(), value: form.kind})
    except pa.ArrowInvalid:
        return None
    if form is RUN and not (np.abs(to_numpy(table[value])) <= FLOAT32_MAX).all():
        return None
    return table.rename_columns(["query", "document", "value"])
