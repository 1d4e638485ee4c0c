"""The (query, document) pairs of candidates, and chunks of them: each pair is made when it is asked for.

Lists of millions of pairs would take more memory than the model.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rerank.batches.batch import Pairs
from rerank.batches.passages import PassageBuilder
from rerank.data.types import Candidates

AT_ONCE = 65_536
"""Pairs whose lengths are found together."""


@dataclass(frozen=True)
class CandidatePairs(Sequence[tuple[str, str]]):
    """(query_id, doc_id) of every candidate; `starts` is the place of each list's first pair, and their number."""

    lists: Sequence[Candidates]
    starts: list[int]

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[number] for number in range(len(self))[place]]
        number = range(len(self))[place]
        row = bisect_right(self.starts, number) - 1
        found = self.lists[row]
        return found.query_id, found.doc_ids[number - self.starts[row]]

    def __len__(self) -> int:
        return self.starts[-1]


@dataclass(frozen=True)
class Chunks(Sequence[Pairs]):
    """Chunks of pairs: chunk c is those numbered order[begins[c]:ends[c]]."""

    pairs: Pairs
    order: np.ndarray
    begins: Sequence[int]
    ends: Sequence[int]

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return Chunks(self.pairs, self.order, self.begins[place], self.ends[place])
        return [self.pairs[number] for number in self.order[self.begins[place] : self.ends[place]].tolist()]

    def __len__(self) -> int:
        return len(self.begins)


def pairs_of(candidates: Iterable[Candidates]) -> CandidatePairs:
    """(query_id, doc_id) of every candidate, in order."""
    lists = list(candidates)
    return CandidatePairs(lists, np.cumsum([0, *(len(found.doc_ids) for found in lists)]).tolist())


def chunk_by_length(pairs: Pairs, builder: PassageBuilder, tokens: int) -> Chunks:
    """Chunks of at most `tokens` tokens, pairs with the longest passages first; a longer document is a chunk by itself.

    Memory then peaks at the start, and passages of similar length are padded together where the encoder needs padding.
    """
    slabs = [builder.sizes(pairs[first : first + AT_ONCE]) for first in range(0, len(pairs) or 1, AT_ONCE)]
    longest, totals = (np.concatenate(parts) for parts in zip(*slabs, strict=True))
    order = np.lexsort((-totals, -longest))
    filled = totals[order].cumsum()
    bounds = [0]
    while bounds[-1] < len(order):
        begin = bounds[-1]
        full = filled[begin - 1] + tokens if begin else tokens
        bounds.append(max(begin + 1, int(filled.searchsorted(full, side="right"))))
    return Chunks(pairs, order.astype(np.int32), bounds[:-1], bounds[1:])
