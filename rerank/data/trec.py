"""Writes TREC run and qrels files, and defines the order of a ranking, including ties.

A line of a run is `query_id Q0 doc_id rank score tag`, a judgment is `query_id 0 doc_id relevance`. trec_eval ignores
the rank, sorts by descending float32 score and breaks ties by descending doc_id; `ranked` does the same. `write_run`
writes strictly decreasing scores, so every evaluator sorts them into the same order.
"""

import contextlib
import gzip
import itertools
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from rerank.data.given import check_scores, given_qrels, given_run
from rerank.data.types import GRADE_MAX, Judgments, Run
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write
from rerank.utils.texts import check_name, check_path, check_text


def ranked(scores: Mapping[str, float]) -> list[str]:
    """The doc_ids of one query, best first: descending float32 score, ties by doc_id descending, as in trec_eval.

    >>> ranked({"a": 1.0, "c": 2.0, "b": 1.0 + 1e-12})
    ['c', 'b', 'a']
    """
    return [doc_id for _, doc_id in sorted(zip(array("f", scores.values()), scores, strict=True), reverse=True)]


def first_documents(run: Run, depth: int) -> Run:
    """The first `depth` documents of each query of a run, best first."""
    return {q: {doc_id: scores[doc_id] for doc_id in ranked(scores)[:depth]} for q, scores in run.items()}


def write_run(run: Run, path: str | Path, tag: str = "rerank", as_found: bool = False) -> None:
    """Writes a TREC run in the order of `ranked`, with ranks from 1, gzipped if the name ends in .gz.

    `tag` is the last word of each line, by which trec_eval and others name the run.

    The written scores of a query strictly decrease as float32. They have six decimals if that suffices; otherwise tied
    scores are moved down to the next float32 and written with nine digits. Reading and writing such a file again gives
    the same file. `as_found` keeps the order and the ties of the run, with six decimals; a BM25 run then has the bytes
    that Pyserini writes. A query without documents has no line. Raises UserError for a score that is not a finite
    float32, for names that are empty or have white space, and for a run without documents.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "fused.run"
    ...     write_run({"q1": {"d1": 0.5, "d2": 0.75}}, path, tag="fused")
    ...     print(path.read_text())
    q1 Q0 d2 1 0.750000 fused
    q1 Q0 d1 2 0.500000 fused
    <BLANKLINE>
    """
    if not isinstance(run, Mapping):
        raise TypeError(f"run: expected {{query_id: {{doc_id: score}}}}, got {type(run).__name__}")
    check_path("path", path)
    check_name("tag", tag)
    if not any(run.values()):
        raise UserError(f"{path}: expected a run with documents, got none; nothing was written")
    _write(path, (lines_of_query(path, query_id, scores, tag, as_found) for query_id, scores in run.items()))


def lines_of_query(path: str | Path, query_id: str, scores: dict[str, float], tag: str, as_found: bool = False) -> str:
    """The lines of one query in `write_run`; raises its errors for the file `path`."""
    scores = given_run({query_id: scores})[query_id]
    check_scores({query_id: scores}, f"{path}: ")
    _check_names(path, tag, query_id, *scores)
    doc_ids = list(scores) if as_found else ranked(scores)
    values = [scores[doc_id] for doc_id in doc_ids]
    texts = [f"{value:.6f}" for value in values] if as_found else _score_texts(values, f"{path}: query {query_id}")
    return "".join(
        f"{query_id} Q0 {doc_id} {rank} {text} {tag}\n"
        for rank, (doc_id, text) in enumerate(zip(doc_ids, texts, strict=True), 1)
    )


def _score_texts(scores: list[float], where: str) -> list[str]:
    """The descending scores of one query as texts that strictly decrease when they are read as float32."""
    texts = [f"{score:.6f}" for score in scores]
    decrease = all(above > below for above, below in itertools.pairwise(array("f", map(float, texts))))
    if decrease and not _have_nine_digits(scores):
        return texts
    nine = [f"{score:.9g}" for score in strictly_decreasing(scores, where)]
    six = [f"{float(text):.6f}" for text in nine]
    return six if list(map(float, six)) == list(map(float, nine)) else nine  # six decimals if they give equal scores


def strictly_decreasing(scores: list[float], where: str) -> list[float]:
    """The scores of one query, in the order of its ranking, as strictly decreasing float32 values.

    A score that ties or rises becomes the next float32 below the one before it. Raises UserError, whose message begins
    with `where`, if no float32 is left.
    """
    import numpy as np  # here, because its import would delay commands that only read and evaluate runs

    exact = np.asarray(scores, dtype=np.float32)
    if (exact[1:] >= exact[:-1]).any():
        # Integers in the order of the float32 values: the next lower float32 is 1 less.
        bits = exact.view(np.int32).astype(np.int64)
        numbers = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
        rank = np.arange(len(numbers))
        lower = np.minimum.accumulate(numbers + rank) - rank
        bits = np.where(lower < 0, -lower | 0x80000000, lower)
        exact = np.where(lower < numbers, bits.astype(np.uint32).view(np.float32), exact)
    if exact.size and not exact[-1] > -math.inf:
        raise UserError(f"{where}: scores tie at {scores[-1]:.9g}, and no float32 below is left to tell them apart")
    values: list[float] = exact.tolist()
    return values


def _have_nine_digits(scores: list[float]) -> bool:
    """Whether the scores come from a run that was written with nine digits and six decimals would change them.

    Such scores are written with nine digits again, so that reading and writing a run gives the same file. At least two
    of them are close enough to tie when they are rounded to six decimals.
    """
    if not any(above - below <= 2e-6 + 2**-21 * abs(above) for above, below in itertools.pairwise(scores)):
        return False
    exact = array("f", scores)
    read = all(float(f"{rounded:.9g}") == score for rounded, score in zip(exact, scores, strict=True))
    return read and any(float(f"{score:.6f}") != score for score in scores)


def write_qrels(qrels: Judgments, path: str | Path) -> None:
    """Writes judgments in TREC's four columns, gzipped if the name ends in .gz.

    Raises UserError for names that are empty or have white space, and for a grade that is not a 32-bit integer.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "qrels.txt"
    ...     write_qrels({"q1": {"d1": 2}}, path)
    ...     path.read_text().split()
    ['q1', '0', 'd1', '2']
    """
    if not isinstance(qrels, Mapping):
        raise TypeError(f"qrels: expected {{query_id: {{doc_id: grade}}}}, got {type(qrels).__name__}")
    check_path("path", path)
    _write(path, (_judgments_of_query(path, query_id, judged) for query_id, judged in qrels.items()))


def _judgments_of_query(path: str | Path, query_id: str, judged: Mapping[str, int]) -> str:
    """The lines of one query in `write_qrels`; raises its errors for the file `path`."""
    grades = given_qrels({query_id: judged})[query_id]
    _check_names(path, query_id, *grades)
    for doc_id, grade in grades.items():
        if abs(grade) > GRADE_MAX:
            where = f"{path}: query {query_id}, document {doc_id}"
            raise UserError(f"{where}: expected a grade up to {GRADE_MAX:,}, got one of {len(str(abs(grade)))} digits")
    return "".join(f"{query_id} 0 {doc_id} {grade}\n" for doc_id, grade in grades.items())


def check_common(
    run: Mapping[str, object], qrels: Judgments, run_name: str = "the run", qrels_name: str = "the qrels"
) -> None:
    """Raises UserError if a run and judgments share no query, because they then belong to different collections."""
    if run.keys().isdisjoint(qrels):
        raise UserError(
            f"{run_name} and {qrels_name} have no query in common: got queries {examples(run)} and {examples(qrels)}; "
            "expected a run and judgments of the same collection"
        )


def examples(query_ids: Iterable[str]) -> str:
    """The first three query ids, for a message."""
    first = list(query_ids)
    return ", ".join([*first[:3], *["…"] * (len(first) > 3)]) or "none"


def _check_names(path: str | Path, *names: str) -> None:
    for name in names:
        if name.split() != [name]:
            raise UserError(f"{path}: name {name!r}: expected one without white space, which no TREC file can hold")
        check_text(f"{path}: name {name!r}", name)


@contextlib.contextmanager
def new_file(path: str | Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """Yields a file to write, gzipped if the name ends in .gz; it replaces `path` when the block ends."""
    with atomic_write(path) as tmp, tmp.open("wb") as file, contextlib.ExitStack() as stack:
        out: IO[bytes] | gzip.GzipFile = file
        if str(path).endswith(".gz"):  # without a name and a time inside, equal runs have equal bytes
            out = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
        yield out


def _write(path: str | Path, texts: Iterable[str]) -> None:
    with new_file(path) as out:
        out.writelines(text.encode() for text in texts)
