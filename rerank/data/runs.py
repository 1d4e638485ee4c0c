"""Reads TREC runs and judgments with pyarrow, as dictionaries, or as arrays for millions of lines.

Columns are separated by any white space, and empty lines are ignored. pyarrow parses blocks of plain lines; the lines
of any other block are first normalised one by one. Errors name the file and the line.
"""

import sys
from bisect import bisect_left
from codecs import BOM_UTF8
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from rerank.data.arrow import BLANKS, Texts, from_numpy, read_columns, to_numpy
from rerank.data.text_lines import BLOCK, read_blocks, size_of
from rerank.data.trec import ranked
from rerank.data.types import FLOAT32_MAX, GRADE_MAX, Qrels, Run
from rerank.utils.errors import UserError
from rerank.utils.progress import progress
from rerank.utils.texts import check_path

Number = TypeVar("Number", float, int)

MANY = 256  # blocks; reading more shows a progress bar
TEXT = pa.dictionary(pa.int32(), pa.string())


class Form(NamedTuple):
    """The columns of a line, the places of document and value among them, the expected value, and its bound."""

    line: str
    document: int
    value: int
    expected: str
    largest: float


RUN = Form("query_id Q0 doc_id rank score tag", 2, 4, "a finite score (float32)", FLOAT32_MAX)
QRELS = Form("query_id 0 doc_id relevance", -2, -1, "an integer relevance", GRADE_MAX)
BEIR = Form("query-id corpus-id score", -2, -1, "an integer relevance", GRADE_MAX)


def read_run(path: str | Path) -> Run:
    r"""Reads a TREC run, gzipped or not: queries in the file's order, documents by descending score, then by doc_id.

    Lines may be in any order; the rank column is ignored. Ties are sorted by descending doc_id. Tabs, CRLF, a BOM and
    words after the tag are tolerated. Raises UserError with file and line for a line of fewer than six columns, a score
    that is not a finite float32, and a document that a query has twice. Raises UserError for a file that is missing,
    damaged or empty.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "bm25.run"
    ...     _ = path.write_text("q1 Q0 d1 1 7.5 bm25\nq1 Q0 d2 2 8.0 bm25\n")
    ...     read_run(path)
    {'q1': {'d2': 8.0, 'd1': 7.5}}
    """
    return dict(read_run_arrays(check_path("path", path)))


def read_qrels(path: str | Path) -> Qrels:
    r"""Reads judgments, gzipped or not: TREC's four columns, or BEIR's three, below their header line or between tabs.

    A query's documents are in the file's order. Raises UserError with file and line for a malformed line, a relevance
    that is not a 32-bit integer (1.0 is one), and two judgments of a document that disagree. Raises UserError for a
    file that is missing, damaged or empty.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "qrels.txt"
    ...     _ = path.write_text("q1 0 d1 2\nq1 0 d2 0\n")
    ...     read_qrels(path)
    {'q1': {'d1': 2, 'd2': 0}}
    """
    return dict(read_qrels_arrays(check_path("path", path)))


@dataclass(frozen=True, eq=False)
class TrecArrays(Mapping[str, dict[str, Number]], Generic[Number]):
    """A `Run` or `Qrels` in arrays: the dictionary of a query, doc_id -> score or relevance, is created on access.

    Access raises UserError, with file and line, for a query with a repeated document or judgments that disagree.

    numbers: query_id -> number of every query, in the file's order; begins: (queries + 1,) int64, query i has the lines
    `begins[i]:begins[i + 1]`; doc_ids: (lines,); scores: (lines,) float64, int32 for judgments. The arrays may have
    more than `depth` lines of a query; `self[query_id]` has the best `depth`.
    """

    path: str | Path
    form: Form
    depth: int
    numbers: dict[str, int]
    begins: np.ndarray
    doc_ids: pa.LargeStringArray
    scores: np.ndarray

    def __getitem__(self, query_id: str) -> dict[str, Number]:
        lines = self._lines_of(query_id)
        doc_ids, scores = self.doc_ids[lines].to_pylist(), self.scores[lines]
        found: dict[str, Number] = dict(zip(doc_ids, scores.tolist(), strict=True))
        if len(found) < len(doc_ids):
            distinct: set[tuple[str, Number]] = set(zip(doc_ids, scores.tolist(), strict=True))
            if self.form is RUN or len(distinct) > len(found):
                raise _repeated_document(self.path, self.form, query_id)
        exact = scores.astype(np.float32)
        if self.form is not RUN or (len(found) <= self.depth and (exact[1:] < exact[:-1]).all()):
            return found
        return {doc_id: found[doc_id] for doc_id in ranked(found)[: self.depth]}

    def __iter__(self) -> Iterator[str]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __contains__(self, query_id: object) -> bool:
        return query_id in self.numbers

    def doc_ids_of(self, query_ids: Iterable[str]) -> Texts:
        """The distinct document ids of the queries, sorted."""
        used = np.zeros(len(self.scores), bool)
        for query_id in self.numbers.keys() & query_ids:
            lines, best = self._lines_of(query_id), self[query_id]
            used[lines] = True
            if lines.stop - lines.start > len(best):
                used[lines] = [doc_id in best for doc_id in self.doc_ids[lines].to_pylist()]
        return Texts(self.doc_ids.take(from_numpy(np.flatnonzero(used))).unique().sort())

    def _lines_of(self, query_id: str) -> slice:
        number = self.numbers[query_id]
        return slice(int(self.begins[number]), int(self.begins[number + 1]))


def read_run_arrays(
    path: str | Path, depth: int = sys.maxsize, query_ids: Container[str] | None = None
) -> TrecArrays[float]:
    """Reads the best `depth` documents of each query in `query_ids`, by default of all, as `read_run` does.

    The file's other queries have no documents. Lines that cannot be among the best are dropped while the file is read.
    A repeated document raises an error on access to its query.
    """
    return _joined(path, RUN, depth, (_best(_only(table, query_ids), depth) for table in _tables(path, RUN)))


def read_qrels_arrays(path: str | Path) -> TrecArrays[int]:
    """Reads judgments as `read_qrels` does; judgments that disagree raise an error on access to their query."""
    return _joined(path, QRELS, sys.maxsize, _tables(path, QRELS))


def _joined(path: str | Path, form: Form, depth: int, tables: Iterable[pa.Table]) -> TrecArrays[Number]:
    """The lines of all tables, grouped by query."""
    table = pa.concat_tables(tables).unify_dictionaries()
    names, queries = table["query"].chunk(0).dictionary.to_pylist(), to_numpy(table["query"])
    if (queries[1:] < queries[:-1]).any():
        order = np.argsort(queries, kind="stable")
        queries, table = queries[order], table.take(from_numpy(order))
    numbers = {name: number for number, name in enumerate(names)}
    begins = np.searchsorted(queries, np.arange(len(names) + 1))
    doc_ids, scores = table["document"].combine_chunks(), to_numpy(table["value"])
    return TrecArrays(path, form, depth, numbers, begins, doc_ids, scores)


def _only(table: pa.Table, query_ids: Container[str] | None) -> pa.Table:
    """The lines of the queries in `query_ids`; all lines without it."""
    if query_ids is None:
        return table
    wanted = np.array([q in query_ids for q in table["query"].chunk(0).dictionary.to_pylist()], bool)
    return table.take(from_numpy(np.flatnonzero(wanted[to_numpy(table["query"])])))


def _best(table: pa.Table, depth: int) -> pa.Table:
    """The lines with the best `depth` scores of each query, and the lines that tie with the last one."""
    queries, scores = to_numpy(table["query"]), to_numpy(table["value"]).astype(np.float32)
    if np.bincount(queries, minlength=1).max() <= depth:
        return table
    order = np.lexsort((-scores, queries))
    begins = np.flatnonzero(np.diff(queries[order], prepend=-1))
    counts = np.diff(begins, append=len(order))
    lowest = scores[order[begins + np.minimum(counts, depth) - 1]]
    return table.take(from_numpy(order[scores[order] >= np.repeat(lowest, counts)]))


def _tables(path: str | Path, form: Form) -> Iterator[pa.Table]:
    """Yields the lines of a run (`RUN`) or of judgments (`QRELS`; `BEIR` is recognised), gzipped or not, in tables.

    A table has the columns query (dictionary-encoded), document and value, with the lines in the file's order. Raises
    UserError with file and line for a malformed line, and for a file that is missing, damaged or empty.
    """
    blocks = read_blocks(path, f"lines of `{form.line}`")
    first = b"".join(islice(blocks, 2))  # a last line without \n is a block of its own
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


def _form_of_qrels(block: bytes) -> Form:
    """BEIR's form for a BEIR header or three columns separated by tabs, otherwise TREC's form."""
    first = block.partition(b"\n")[0]
    words = first.split()
    return BEIR if words[2:] == [b"score"] or (len(words) == 3 and b"\t" in first.strip()) else QRELS


def _plain_lines(block: bytes, form: Form) -> pa.Table | None:
    """The lines of a block; None if a line is invalid, or its columns are not separated by single blanks."""
    text = block.replace(b"\r\n", b"\n").translate(BLANKS)
    if text.startswith(b" ") or text.endswith(b" ") or any(pair in text for pair in (b"  ", b"\n ", b" \n")):
        return None
    return _parse(text, form)


def _other_lines(path: str | Path, form: Form, block: bytes, number: int) -> pa.Table | None:
    """The lines of any block, which begins with line `number`; None if all are empty; UserError for an invalid line."""
    if block.isspace():  # a shortcut for millions of empty lines
        return None
    lines: list[tuple[int, bytes]] = []
    for place, line in enumerate(block.removesuffix(b"\n").split(b"\n"), number):
        words = line.split()
        if form is RUN and words[3:4] and words[3].lstrip(b"-").isdigit():  # words may follow the tag
            words = words[:6]
        if words and (form is not BEIR or words[2:] != [b"score"]):  # the header
            lines.append((place, b" ".join(words)))
    plain = [line for _, line in lines]
    table = _parse(b"\n".join(plain), form) if lines else None
    if table is None and lines:  # lines are valid together if each line is valid, so bisection finds the first error
        first = bisect_left(range(1, len(lines)), True, key=lambda n: _parse(b"\n".join(plain[:n]), form) is None)
        place, got = lines[first]
        shown = repr(got.decode(errors="backslashreplace")[:200])
        raise UserError(f"{path}:{place}: expected `{form.line}` with {form.expected}, got {shown}")
    return table


def _parse(text: bytes, form: Form) -> pa.Table | None:
    """Lines of columns separated by single spaces, as a table; None if a line is invalid."""
    if b"\0" in text:
        return None
    names = [str(place) for place in range(len(form.line.split()))]
    query, document, value = names[0], names[form.document], names[form.value]
    types = {query: TEXT, document: pa.large_string(), value: pa.float64()}
    try:
        table = read_columns(BOM_UTF8 + text, " ", names, types)  # pyarrow skips one BOM, which may be part of an id
    except pa.ArrowInvalid:
        return None
    values = to_numpy(table[value])
    if not (np.abs(values) <= form.largest).all():  # also false for NaN
        return None
    if form is not RUN:
        if (values != np.rint(values)).any():
            return None
        values = values.astype(np.int32)
    columns = [table[query], table[document], pa.chunked_array([from_numpy(values)])]
    return pa.table(columns, ["query", "document", "value"])


def _repeated_document(path: str | Path, form: Form, query_id: str) -> UserError:
    """The error for a query with a document twice, or with judgments that disagree, at the second of the two lines."""
    blocks = read_blocks(path, f"lines of `{form.line}`")
    values: dict[bytes, bytes] = {}
    for number, line in enumerate(chain.from_iterable(block.removesuffix(b"\n").split(b"\n") for block in blocks), 1):
        words = line.split()
        if words[:1] == [query_id.encode()]:
            doc_id, value = words[form.document], words[form.value]
            first = values.get(doc_id)
            values.setdefault(doc_id, value)
            if first is not None and (form is RUN or float(first) != float(value)):
                once = f"one line of document {doc_id.decode()} for query {query_id}"
                return UserError(f"{path}:{number}: expected {once}, got {first.decode()} and {value.decode()}")
    return UserError(f"{path}: expected one line of each document for query {query_id}, got two")  # a pipe is read once
