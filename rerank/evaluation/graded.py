"""trec_eval's measures with graded gains, computed here where a grade is high.

trec_eval counts the documents of every gain up to the highest and searches these counts from the first on, so its time
grows with the square of the highest gain and its memory with the gain. Here both grow with the documents. Every sum has
trec_eval's terms in trec_eval's order, so the values are the same to the last bit.
"""

from collections.abc import Callable, Sequence
from itertools import groupby, zip_longest
from math import log2

HIGHEST_GAIN = 2**53
"""Up to this gain, every integer is a float64."""


def graded_value(trec_name: str, ranking: Sequence[int], judged: Sequence[int], cutoff: int = 0) -> float:
    """The value of one query on one of GRADED.

    `ranking` has the gains of the documents of the run, best first, 0 for a document without a judgment; `judged` the
    gains of all judged documents. No gain is negative. `cutoff` is that of ndcg_cut. 0 if no judged gain is positive.
    """
    ideal = sorted((gain for gain in judged if gain > 0), reverse=True)
    return GRADED[trec_name](ranking[: cutoff or None], ideal[: cutoff or None]) if ideal else 0.0


def _dcg(gains: Sequence[int]) -> float:
    total = 0.0
    for rank, gain in enumerate(gains, 1):
        if gain:
            total += gain / log2(rank + 1)
    return total


def _ndcg(ranking: Sequence[int], ideal: Sequence[int]) -> float:
    return _dcg(ranking) / _dcg(ideal)


def _ndcg_rel(ranking: Sequence[int], ideal: Sequence[int]) -> float:
    """The mean of nDCG at the ranks of the relevant documents; one that is not retrieved has the nDCG of all ranks."""
    total, found, dcg, ideal_dcg = 0.0, 0, 0.0, 0.0
    for rank, (gain, best) in enumerate(zip_longest(ranking, ideal, fillvalue=0), 1):
        if best:
            ideal_dcg += best / log2(rank + 1)
        if gain:
            dcg += gain / log2(rank + 1)
            total += dcg / ideal_dcg
            found += 1
    total += float(len(ideal) - found) * dcg / ideal_dcg
    return total / len(ideal)


def _rndcg(ranking: Sequence[int], ideal: Sequence[int]) -> float:
    """The mean of nDCG at the ranks where the ideal gain changes, and at the last rank if it is after them."""
    ends, end = set(), 0
    for _, level in groupby(ideal):
        end += len(list(level))
        ends.add(end)
    total, dcg, ideal_dcg = 0.0, 0.0, 0.0
    for rank, (gain, best) in enumerate(zip_longest(ranking, ideal, fillvalue=0), 1):
        if gain:
            dcg += gain / log2(rank + 1)
        if best:
            ideal_dcg += best / log2(rank + 1)
        if rank in ends:
            total += dcg / ideal_dcg
    levels = len(ends)
    if len(ranking) > len(ideal) + 1:
        total += dcg / ideal_dcg
        levels += 1
    return total / levels


def _g(ranking: Sequence[int], ideal: Sequence[int]) -> float:
    """The sum of gain / log2(2 + cost - gains so far), over the sum of the ideal gains; a rank costs 1 or more."""
    total, gains, cost = 0.0, 0.0, 0.0
    for rank, gain in enumerate(ranking):
        gains += gain
        cost += max(1.0, ideal[rank]) if rank < len(ideal) else 1.0
        if gain:
            total += gain / log2(2 + cost - gains)
    return total / sum(map(float, ideal))


GRADED: dict[str, Callable[[Sequence[int], Sequence[int]], float]] = {
    "ndcg": _ndcg,
    "ndcg_cut": _ndcg,
    "ndcg_rel": _ndcg_rel,
    "Rndcg": _rndcg,
    "G": _g,
}
"""trec_eval's measures whose gains are the grades, without a cut-off: a function of the gains and the ideal gains."""
