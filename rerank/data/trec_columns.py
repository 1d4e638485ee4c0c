"""The columns of a run or qrels file, line by line: what `rerank.data.trec` and the readers of arrays share."""

import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from rerank.data.run_scores import FLOAT32_MAX
from rerank.data.text_lines import fail_line
from rerank.data.trec_lines import Take, are_empty, numbered_lines
from rerank.utils.errors import UserError
from rerank.utils.progress import log

RUN_LINE = "query_id Q0 doc_id rank score tag"
QRELS_LINE = "query_id 0 doc_id relevance"
BEIR_LINE = "query-id corpus-id score"
TakeColumns = Callable[[int, bytes, int], bool]
"""As `Take`, with the number of columns."""
NUL, UNDERSCORE = b"\0_"
"""Bytes as numbers: Python finds these several times faster in a line than texts of one byte."""


def run_lines(path: str | Path, take: Take | None = None) -> Iterator[tuple[int, str, str, float]]:
    """The number, query, document and score of each line of a run, checked as `read_run` does, but for repetitions.

    The lines of a block that `take` reads are left out (see `numbered_lines`). Lines in turn of one query have the same
    text of its id, not an equal one.
    """
    last, query_id = b"", ""
    longer = 0
    lines = numbered_lines(path, RUN_LINE, take)
    for number, line in lines:
        columns = line.split()
        if len(columns) != 6 or NUL in line:
            if not columns and are_empty(lines):
                break
            # A document id with a space moves the id into the column of the rank.
            if len(columns) < 6 or NUL in line or not columns[3].isdigit():
                _fail_columns(path, number, line, RUN_LINE)
            longer += 1
            columns = columns[:6]
        query, _, doc, _, text, _ = columns
        try:
            score = float(text)
        except ValueError:
            score = math.nan
        # Python reads 1_0 as 10; no evaluator does.
        if not -FLOAT32_MAX <= score <= FLOAT32_MAX or UNDERSCORE in text:
            fail_line(path, number, "a finite score", _printable(text))
        try:
            doc_id = doc.decode()
            if query != last:
                last, query_id = query, query.decode()
        except UnicodeDecodeError as error:
            fail_line(path, number, "UTF-8", _printable(error.object))
        yield number, query_id, doc_id, score
    if longer:
        log.info(f"{path}: lines with words after the tag, which are left out: {longer}")


def qrels_lines(path: str | Path, take: TakeColumns | None = None) -> Iterator[tuple[int, str, str, int]]:
    """The number, query, document and relevance of each judgment, checked as `read_qrels` does but for disagreement.

    The lines of a block that `take` reads are left out; it is also given the number of columns. Lines in turn of one
    query have the same text of its id, not an equal one.
    """
    width, some = 0, False

    def take_columns(number: int, block: bytes) -> bool:
        nonlocal some
        taken = bool(width and take and take(number, block, width))
        some = some or taken
        return taken

    lines = numbered_lines(path, QRELS_LINE, take_columns if take else None)
    first = next(lines, (1, b""))
    words = first[1].split()
    header = words[2:] == [b"score"]
    expected = BEIR_LINE if header or (len(words) == 3 and b"\t" in first[1].strip()) else QRELS_LINE
    width = len(expected.split())
    last, query_id = b"", ""
    for number, line in lines if header else itertools.chain([first], lines):
        columns = line.split()
        if len(columns) != width or NUL in line:
            if not columns and are_empty(lines):
                break
            _fail_columns(path, number, line, expected)
        query, doc, text = columns[0], columns[-2], columns[-1]
        try:
            relevance = whole_number(text)
            doc_id = doc.decode()
            if query != last:
                last, query_id = query, query.decode()
        except UnicodeDecodeError as error:
            fail_line(path, number, "UTF-8", _printable(error.object))
        except ValueError:
            fail_line(path, number, "an integer relevance", _printable(text))
        some = True
        yield number, query_id, doc_id, relevance
    if header and not some:
        _fail_columns(path, first[0] + 1, b"", expected)
    expect_some(path, some, expected)


def whole_number(text: bytes) -> int:
    """The relevance that a judgment has; raises ValueError."""
    if UNDERSCORE in text:  # Python reads 1_0 as 10
        raise ValueError(text)
    return int(text)


def fail_disagreement(path: str | Path, number: int, query_id: str, doc_id: str, both: tuple[int, int]) -> NoReturn:
    """Raises UserError for a line that judges a document for the second time, otherwise than before."""
    fail_line(path, number, f"one judgment of document {doc_id} for query {query_id}", " and ".join(map(str, both)))


def fail_repeated(path: str | Path, number: int, query_id: str, doc_id: str) -> NoReturn:
    """Raises UserError for a line whose document its query has already."""
    fail_line(path, number, "a document once in a query", f"document {doc_id} of query {query_id} again")


def expect_some(path: str | Path, found: object, expected: str) -> None:
    """Raises UserError for a file in which nothing was found."""
    if not found:
        raise UserError(f"{path}: empty file; expected lines of `{expected}`")


def _fail_columns(path: str | Path, number: int, line: bytes, expected: str) -> NoReturn:
    got = f"{len(line.split())}: {_printable(line.strip())[:200]!r}"
    fail_line(path, number, f"{len(expected.split())} columns, `{expected}`", got)


def _printable(text: bytes) -> str:
    return text.decode(errors="backslashreplace")
