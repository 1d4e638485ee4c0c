"""The lines of TREC runs and qrels, a block at a time: pyarrow parses plain blocks; Python checks the other ones."""

from codecs import BOM_UTF8
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
from pyarrow import csv

from rerank.data.run_scores import FLOAT32_MAX
from rerank.data.text_lines import BLOCK, fail_line, read_blocks, read_lines, size_of_text
from rerank.utils.errors import UserError
from rerank.utils.progress import log, progress

MANY = 256
"""Blocks whose reading shows a progress bar."""
BLANKS = bytes.maketrans(b"\t\r\v\f", b"    ")


class Form(NamedTuple):
    """The columns of a line, the places of the document and of the value among them, and what the value is."""

    line: str
    document: int
    value: int
    expected: str
    kind: pa.DataType


RUN = Form("query_id Q0 doc_id rank score tag", 2, 4, "a finite score", pa.float64())
QRELS = Form("query_id 0 doc_id relevance", -2, -1, "an integer relevance", pa.int32())
BEIR = Form("query-id corpus-id score", -2, -1, "an integer relevance", pa.int32())


def trec_tables(path: str | Path, form: Form) -> Iterator[pa.Table]:
    """The lines of a run (`RUN`) or of judgments (`QRELS`; `BEIR` is recognised), gzipped or not, in tables.

    A table has the columns query (dictionary-encoded), document and value; the lines are in the file's order. Columns
    of the file are separated by any white space. Comment lines (`#`), words after the tag of a run and empty lines at
    the end are left out; the first two are logged. Raises UserError with file and line for a malformed line, and for a
    file that is missing, damaged or empty.
    """
    blocks = read_blocks(path, f"lines of `{form.line}`")
    first = b"".join(islice(blocks, 2))  # the last line may be a block of its own, if it does not end in \n
    form = _form_of_qrels(first) if form is QRELS else form
    checked, number, found = _CheckedLines(path, form), 1, False
    count = -(-size_of_text(path) // BLOCK)
    for block in progress(chain([first], blocks), count, f"reading {Path(path).name}", show=count > MANY):
        table = None if checked.empty_line else _plain_lines(block, form)
        if table is None and (text := checked.clean(block, number)):
            table = _parse(text, form)
        number += block.count(b"\n")
        if table is not None:
            found = True
            yield table
    if not found:
        what = "nothing but comments" if checked.comments else "empty file"
        raise UserError(f"{path}: {what}; expected lines of `{form.line}`")
    checked.log_left_out()


def to_numpy(column: pa.ChunkedArray) -> np.ndarray:
    """A copy of the numbers of a column, or of the int32 codes of a dictionary-encoded one."""
    chunks = [chunk.indices if isinstance(chunk, pa.DictionaryArray) else chunk for chunk in column.chunks]
    # DLPack: pyarrow's own ways to numpy import pandas, which takes 35 MB.
    return np.concatenate([np.from_dlpack(chunk) for chunk in chunks]) if chunks else np.zeros(0, np.int32)


def lines_of_pair(path: str | Path, form: Form, query_id: str, doc_id: str) -> Iterator[tuple[int, str]]:
    """The number and the value of each line that has these ids, for a message."""
    query, document = query_id.encode(), doc_id.encode()
    for number, line in enumerate(read_lines(path, f"lines of `{form.line}`"), 1):
        columns = line.split()
        if columns[:1] == [query] and columns[form.document] == document:
            yield number, columns[form.value].decode()


def _form_of_qrels(block: bytes) -> Form:
    """BEIR's three columns, if there is its header line or three columns between tabs; else TREC's four."""
    first = next((line for line in block.split(b"\n") if not line.startswith(b"#")), b"")
    words = first.split()
    return BEIR if words[2:] == [b"score"] or (len(words) == 3 and b"\t" in first.strip()) else QRELS


def _plain_lines(block: bytes, form: Form) -> pa.Table | None:
    """The lines of a block; None if one is malformed, or has anything but single blanks between its columns."""
    text = block.replace(b"\r\n", b"\n").translate(BLANKS)
    characters = np.frombuffer(text, np.uint8)
    blank = (characters == ord(" ")) | (characters == ord("\n"))
    if text.startswith((b" ", b"\n", b"#")) or text.endswith(b" ") or (blank[1:] & blank[:-1]).any() or b"\0" in text:
        return None
    if (b"#" in text and b"\n#" in text) or (form is not RUN and b"0x" in text.lower()):  # pyarrow reads 0x1 as 1
        return None
    try:
        table = _parse(text, form)
    except pa.ArrowInvalid:
        return None
    return table if form is not RUN or (np.abs(to_numpy(table["value"])) <= FLOAT32_MAX).all() else None


def _parse(text: bytes, form: Form) -> pa.Table:
    names = [str(place) for place in range(len(form.line.split()))]
    query, document, value = names[0], names[form.document], names[form.value]
    table = csv.read_csv(
        pa.py_buffer(BOM_UTF8 + text),  # pyarrow skips one BOM, which may be a part of a query id
        csv.ReadOptions(use_threads=False, column_names=names, block_size=len(text) + 4),
        csv.ParseOptions(delimiter=" ", quote_char=False, double_quote=False, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types={query: pa.dictionary(pa.int32(), pa.string()), document: pa.large_string(), value: form.kind},
            include_columns=[query, document, value],
            null_values=[],
        ),
    )
    return table.rename_columns(["query", "document", "value"])


class _CheckedLines:
    """Checks lines one by one; counts the comments and the lines with words after the tag."""

    def __init__(self, path: str | Path, form: Form) -> None:
        self.path, self.form = path, form
        self.empty_line = self.comments = self.longer = 0

    def clean(self, block: bytes, number: int) -> bytes:
        """The lines of a block as plain lines; `number` is that of the first. Raises UserError."""
        if block.isspace():  # millions of empty lines at once
            self.empty_line = self.empty_line or number
            return b""
        kept = []
        for place, line in enumerate(block.removesuffix(b"\n").split(b"\n"), number):
            columns = line.split()
            if not columns:
                self.empty_line = self.empty_line or place
            elif columns[0].startswith(b"#"):
                self.comments += 1
            elif self.empty_line:  # only empty lines may follow one
                self._fail_columns(self.empty_line, b"")
            elif self.form is not BEIR or columns[2:] != [b"score"]:  # the header
                kept.append(b" ".join(self._check(place, line, columns)) + b"\n")
        return b"".join(kept)

    def log_left_out(self) -> None:
        """Logs how many lines have comments and words after the tag."""
        if self.longer:
            log.info(f"{self.path}: lines with words after the tag, which are left out: {self.longer}")
        if self.comments:
            log.info(f"{self.path}: lines with comments (#), which are left out: {self.comments}")

    def _check(self, number: int, line: bytes, columns: list[bytes]) -> list[bytes]:
        """The columns, with the value as pyarrow reads it."""
        # A document id with a space would move the rank.
        if self.form is RUN and len(columns) > 6 and columns[3].isdigit():
            self.longer += 1
            columns = columns[:6]
        if len(columns) != len(self.form.line.split()) or b"\0" in line:
            self._fail_columns(number, line)
        text = columns[self.form.value]
        try:
            columns[self.form.value] = (_score if self.form is RUN else _relevance)(text)
        except ValueError:
            fail_line(self.path, number, self.form.expected, _printable(text))
        for name in (columns[0], columns[self.form.document]):
            try:
                name.decode()
            except UnicodeDecodeError:
                fail_line(self.path, number, "UTF-8", _printable(name))
        return columns

    def _fail_columns(self, number: int, line: bytes) -> NoReturn:
        got = f"{len(line.split())}: {_printable(line.strip())[:200]!r}"
        fail_line(self.path, number, f"{len(self.form.line.split())} columns, `{self.form.line}`", got)


def _score(text: bytes) -> bytes:
    score = float(text)
    if not -FLOAT32_MAX <= score <= FLOAT32_MAX or b"_" in text:  # Python reads 1_0 as 10; no evaluator does
        raise ValueError(text)
    return repr(score).encode()


def _relevance(text: bytes) -> bytes:
    relevance = int(text)
    if not -(2**31) <= relevance < 2**31 or b"_" in text:
        raise ValueError(text)
    return str(relevance).encode()


def _printable(text: bytes) -> str:
    return text.decode(errors="backslashreplace")
