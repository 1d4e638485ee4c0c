"""The lines of TREC runs and qrels, a block at a time: pyarrow parses plain blocks; Python checks the other ones."""

from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv

from rerank.data.text_lines import BLOCK, fail_line, read_blocks, size_of_text
from rerank.data.types import FLOAT32_MAX
from rerank.utils.errors import UserError
from rerank.utils.progress import log, progress

MANY = 256
"""Blocks whose reading shows a progress bar."""
COMMENTS, MORE_WORDS = "comments (#)", "words after the tag"
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
    of the file are separated by any white space. Comment lines (`#`), words after the tag of a run and empty lines
    are left out; the first two are logged. Raises UserError with file and line for a malformed line, and for a
    file that is missing, damaged or empty.
    """
    blocks = read_blocks(path, f"lines of `{form.line}`")
    first = b"".join(islice(blocks, 2))  # the last line may be a block of its own, if it does not end in \n
    form = _form_of_qrels(first) if form is QRELS else form
    left_out, number, found = Counter[str](), 1, False
    count = -(-size_of_text(path) // BLOCK)
    for block in progress(chain([first], blocks), count, f"reading {Path(path).name}", show=count > MANY):
        table = _plain_lines(block, form)
        if table is None and (text := _checked_lines(path, form, block, number, left_out)):
            table = _parse(text, form)
        number += block.count(b"\n")
        if table is not None:
            found = True
            yield table
    if not found:
        what = "nothing but comments" if left_out else "empty file"
        raise UserError(f"{path}: {what}; expected lines of `{form.line}`")
    for what, lines in left_out.items():
        log.info(f"{path}: lines with {what}, which are left out: {lines}")


def to_numpy(column: pa.ChunkedArray) -> np.ndarray:
    """A copy of the numbers of a column, or of the int32 codes of a dictionary-encoded one."""
    chunks = [chunk.indices if isinstance(chunk, pa.DictionaryArray) else chunk for chunk in column.chunks]
    # DLPack: pyarrow's own ways to numpy import pandas, which takes 35 MB.
    return np.concatenate([np.from_dlpack(chunk) for chunk in chunks]) if chunks else np.zeros(0, np.int32)


def lines_of_pair(path: str | Path, form: Form, query_id: str, doc_id: str) -> Iterator[tuple[int, str]]:
    """The number and the value of each line that has these ids, for a message."""
    query, document = query_id.encode(), doc_id.encode()
    blocks = read_blocks(path, f"lines of `{form.line}`")
    lines = chain.from_iterable(block.removesuffix(b"\n").split(b"\n") for block in blocks)
    for number, line in enumerate(lines, 1):
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


def _checked_lines(path: str | Path, form: Form, block: bytes, number: int, left_out: Counter[str]) -> bytes:
    """The lines of a block as plain lines; `number` is that of the first. Counts what is left out. Raises UserError."""
    kept: list[bytes] = []
    if block.isspace():  # millions of empty lines at once
        return b""
    for place, line in enumerate(block.removesuffix(b"\n").split(b"\n"), number):
        columns = line.split()
        if not columns or (form is BEIR and columns[2:] == [b"score"]):  # the header
            continue
        if columns[0].startswith(b"#"):
            left_out[COMMENTS] += 1
            continue
        if form is RUN and len(columns) > 6 and columns[3].isdigit():  # else an id with a space moves the rank
            left_out[MORE_WORDS] += 1
            columns = columns[:6]
        if len(columns) != len(form.line.split()) or b"\0" in line:
            got = f"{len(line.split())}: {_printable(line.strip())[:200]!r}"
            fail_line(path, place, f"{len(form.line.split())} columns, `{form.line}`", got)
        text = columns[form.value]
        try:
            columns[form.value] = (_score if form is RUN else _relevance)(text)  # as pyarrow reads it
        except ValueError:
            fail_line(path, place, form.expected, _printable(text))
        for name in (columns[0], columns[form.document]):
            try:
                name.decode()
            except UnicodeDecodeError:
                fail_line(path, place, "UTF-8", _printable(name))
        kept.append(b" ".join(columns) + b"\n")
    return b"".join(kept)


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
