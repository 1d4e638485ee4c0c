"""Reads TREC runs and judgments with pyarrow: as dictionaries, or as arrays where there are millions of lines.

Columns are separated by any white space, and empty lines do not count. pyarrow parses blocks of plain lines; the lines
of any other block are first made plain, one by one. A wrong line is named by file and line.
"""

import sys
from bisect import bisect_left
from codecs import BOM_UTF8
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from rerank.data.arrow import BLANKS, Texts, from_numpy, read_columns, to_numpy
from rerank.data.text_lines import BLOCK, read_blocks, size_of
from rerank.data.trec import ranked
from rerank.data.types import FLOAT32_MAX, Qrels, Run
from rerank.utils.errors import UserError
from rerank.utils.progress import progress

Number = TypeVar("Number", float, int)

MANY = 256  # blocks whose reading shows a progress bar
TEXT = pa.dictionary(pa.int32(), pa.string())


class Form(NamedTuple):
    """A line's columns, the places of the document and of the value among them, what the value is, and its bound."""

    line: str
    document: int
    value: int
    expected: str
    largest: float


RUN = Form("query_id Q0 doc_id rank score tag", 2, 4, "a finite score (float32)", FLOAT32_MAX)
QRELS = Form("query_id 0 doc_id relevance", -2, -1, "an integer relevance", 2**31 - 1)
BEIR = Form("query-id corpus-id score", -2, -1, "an integer relevance", 2**31 - 1)


def read_run(path: str | Path) -> Run:
    """Reads a TREC run, gzipped or not: queries in the file's order, the documents of each in THE order.

    Lines may be in any order; the rank column is ignored and documents are sorted by score. Tabs, CRLF, a BOM and words
    after the tag are tolerated. Raises UserError with file and line for a line of fewer than six columns, a score that
    is not a finite float32, and a document that a query has twice; and for a file that is missing, damaged or empty.
    """
    return dict(read_run_arrays(path))


def read_qrels(path: str | Path) -> Qrels:
    """Reads judgments, gzipped or not: TREC's four columns, or BEIR's three, below their header line or between tabs.

    A query's documents are in the file's order. Raises UserError with file and line for a malformed line, a relevance
    that is not an integer (of 32 bits; 1.0 is one), and two judgments of a document that disagree; and for a file that
    is missing, damaged or empty.
    """
    return dict(read_qrels_arrays(path))


@dataclass(frozen=True, eq=False)
class TrecArrays(Mapping[str, dict[str, Number]], Generic[Number]):
    """query_id -> doc_id -> score or relevance, as `Run` and `Qrels`: a query's dictionary is made when asked for.

    A query raises UserError, with file and line, if it has a document twice, or two judgments that disagree.

    numbers: query_id to the query's number, of every query of the file, in its order; begins: (queries + 1,) int64,
    query i has the lines of `begins[i]` to `begins[i + 1]`; doc_ids: of each line; scores: (lines,) float64, or int32
    if they are judgments. A query may have more than `depth` lines here: `self[query_id]` has the best ones.
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
            _check_repeated(self.path, self.form, query_id)
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
        """The distinct ids of the documents of these queries, sorted."""
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
    """Reads the best `depth` documents of each query of a run, as `read_run` does.

    The documents of queries that are not in `query_ids` are left out. What cannot be among the best is dropped while
    the file is read. A repeated document is found when its query is asked for.
    """
    return _joined(path, RUN, depth, (_best(_only(table, query_ids), depth) for table in _tables(path, RUN)))


def read_qrels_arrays(path: str | Path) -> TrecArrays[int]:
    """Reads judgments, as `read_qrels` does; judgments that disagree are found when their query is asked for."""
    return _joined(path, QRELS, sys.maxsize, _tables(path, QRELS))


def _joined(path: str | Path, form: Form, depth: int, tables: Iterable[pa.Table]) -> TrecArrays[Any]:
    """The lines of all tables, those of a query together."""
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
    """The lines of these queries."""
    if query_ids is None:
        return table
    wanted = np.array([q in query_ids for q in table["query"].chunk(0).dictionary.to_pylist()], bool)
    return table.take(from_numpy(np.flatnonzero(wanted[to_numpy(table["query"])])))


def _best(table: pa.Table, depth: int) -> pa.Table:
    """The lines of each query with its best `depth` scores, and those that tie with the last of them."""
    queries, scores = to_numpy(table["query"]), to_numpy(table["value"]).astype(np.float32)
    if np.bincount(queries, minlength=1).max() <= depth:
        return table
    order = np.lexsort((-scores, queries))
    begins = np.flatnonzero(np.diff(queries[order], prepend=-1))
    counts = np.diff(begins, append=len(order))
    lowest = scores[order[begins + np.minimum(counts, depth) - 1]]
    return table.take(from_numpy(order[scores[order] >= np.repeat(lowest, counts)]))


def _tables(path: str | Path, form: Form) -> Iterator[pa.Table]:
    """The lines of a run (`RUN`) or of judgments (`QRELS`; `BEIR` is recognised), gzipped or not, in tables.

    A table has the columns query (dictionary-encoded), document and value; the lines are in the file's order. Raises
    UserError with file and line for a malformed line, and for a file that is missing, damaged or empty.
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


def _form_of_qrels(block: bytes) -> Form:
    """BEIR's three columns, if there is its header line or three columns between tabs; else TREC's four."""
    first = block.partition(b"\n")[0]
    words = first.split()
    return BEIR if words[2:] == [b"score"] or (len(words) == 3 and b"\t" in first.strip()) else QRELS


def _plain_lines(block: bytes, form: Form) -> pa.Table | None:
    """The lines of a block; None if one is invalid, or has anything but single blanks between its columns."""
    text = block.replace(b"\r\n", b"\n").translate(BLANKS)
    if text.startswith(b" ") or text.endswith(b" ") or any(pair in text for pair in (b"  ", b"\n ", b" \n")):
        return None
    return _parse(text, form)


def _other_lines(path: str | Path, form: Form, block: bytes, number: int) -> pa.Table | None:
    """The lines of any block, of which `number` is the first; None if all are empty; UserError for an invalid one."""
    if block.isspace():  # millions of empty lines at once
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
    if table is None and lines:  # some lines are valid together if each of them is
        first = bisect_left(range(1, len(lines)), True, key=lambda n: _parse(b"\n".join(plain[:n]), form) is None)
        place, got = lines[first]
        shown = repr(got.decode(errors="backslashreplace")[:200])
        raise UserError(f"{path}:{place}: expected `{form.line}` with {form.expected}, got {shown}")
    return table


def _parse(text: bytes, form: Form) -> pa.Table | None:
    """Lines of columns between single spaces as a table; None if one is invalid."""
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
    if not (np.abs(values) <= form.largest).all():  # nor is NaN
        return None
    if form is not RUN:
        if (values != np.rint(values)).any():
            return None
        values = values.astype(np.int32)
    columns = [table[query], table[document], pa.chunked_array([from_numpy(values)])]
    return pa.table(columns, ["query", "document", "value"])


def _check_repeated(path: str | Path, form: Form, query_id: str) -> None:
    """Raises UserError for a query's second line of a document; of judgments, for one that disagrees."""
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
                raise UserError(f"{path}:{number}: expected {once}, got {first.decode()} and {value.decode()}")
