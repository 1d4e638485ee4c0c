"""The candidates of each query: the documents of a run that a re-ranker scores, with their labels."""

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

from rerank.data.trec import check_common, ranked
from rerank.data.types import Candidates, Judgments


@dataclass(frozen=True, eq=False)
class CandidateLists(Mapping[str, Candidates]):
    """query_id -> Candidates, in the order of `query_ids`, each created on access. See `select_candidates`."""

    run: Mapping[str, dict[str, float]]
    qrels: Judgments
    depth: int
    query_ids: Mapping[str, object]
    keep_scores: bool

    def __getitem__(self, query_id: str) -> Candidates:
        if query_id not in self.query_ids:
            raise KeyError(query_id)
        scores = self.run.get(query_id, {})
        doc_ids = tuple(ranked(scores)[: self.depth])
        judged = self.qrels.get(query_id, {})
        labels = tuple(max(0, judged.get(doc_id, 0)) for doc_id in doc_ids)
        first_scores = standardised([scores[doc_id] for doc_id in doc_ids]) if self.keep_scores else ()
        return Candidates(query_id, doc_ids, labels, first_scores)

    def __iter__(self) -> Iterator[str]:
        return iter(self.query_ids)

    def __len__(self) -> int:
        return len(self.query_ids)

    def __contains__(self, query_id: object) -> bool:
        return query_id in self.query_ids


def select_candidates(
    run: Mapping[str, dict[str, float]],
    qrels: Judgments,
    depth: int,
    query_ids: Iterable[str] | None = None,
    keep_scores: bool = False,
) -> CandidateLists:
    """The best `depth` documents by query_id, in first-stage order, for `query_ids` or every query of the run.

    A document without a judgment, or with a negative one (TREC's "junk"), has the label 0. A query that is not in the
    run has no documents. `qrels` may be empty. With `keep_scores` the candidates have their first-stage scores. Raises
    UserError if the run and the judgments share no query, because they then belong to different collections.
    """
    if qrels:
        check_common(run, qrels)
    return CandidateLists(run, qrels, depth, dict.fromkeys(run if query_ids is None else query_ids), keep_scores)


def standardised(scores: Sequence[float]) -> tuple[float, ...]:
    """The scores, read as float32, scaled to mean 0 and (population) standard deviation 1; all 0 if they are equal.

    >>> standardised([3.0, 1.0])
    (1.0, -1.0)
    """
    values = array("f", scores)
    mean = math.fsum(values) / max(1, len(values))
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / max(1, len(values)))
    return tuple((value - mean) / spread if spread else 0.0 for value in values)


@dataclass(frozen=True)
class ListsOf(Sequence[Candidates]):
    """The candidates of `query_ids`, in this order, each created on access."""

    candidates: Mapping[str, Candidates]
    query_ids: Sequence[str]

    @overload
    def __getitem__(self, place: int) -> Candidates: ...
    @overload
    def __getitem__(self, place: slice) -> "ListsOf": ...
    def __getitem__(self, place: int | slice) -> "Candidates | ListsOf":
        if isinstance(place, slice):
            return ListsOf(self.candidates, self.query_ids[place])
        return self.candidates[self.query_ids[place]]

    def __len__(self) -> int:
        return len(self.query_ids)


def distinct_doc_ids(candidates: Mapping[str, Candidates]) -> Sequence[str]:
    """The distinct ids of all candidates, sorted."""
    from rerank.data.runs import TrecArrays  # loads pyarrow

    if isinstance(candidates, CandidateLists):
        run = candidates.run
        if isinstance(run, TrecArrays) and run.depth <= candidates.depth:
            return run.doc_ids_of(candidates.query_ids)
    return sorted({doc_id for found in candidates.values() for doc_id in found.doc_ids})
