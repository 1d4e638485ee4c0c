"""P@K, RR@K, NDCG@K, RR, NDCG and AP, computed from the exact or expected label at each rank.

`soft_ranks.metric_from_soft_ranks` computes them from soft ranks.
"""

import math
import re
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rerank.losses.inputs import by_score, mask_inputs


class Metric(NamedTuple):
    """A parsed metric: `name` is p, rr, ndcg or ap; `cutoff` is K, or None."""

    name: str
    cutoff: int | None


def parse(metric: str) -> Metric:
    """Parses the name of a metric, p@K, rr@K, ndcg@K, rr, ndcg or ap, in any case; raises ValueError for others.

    >>> parse("ndcg@10")
    Metric(name='ndcg', cutoff=10)
    """
    match = re.fullmatch(r"(p|rr|ndcg)@(\d{1,9})|(rr|ndcg|ap)", metric.lower())
    cutoff = int(match[2]) if match and match[2] else None
    if match is None or cutoff == 0:
        raise ValueError(f"metric {metric!r}: expected p@K, rr@K, ndcg@K, rr, ndcg or ap, with K from 1 to 999999999")
    return Metric(match[1] or match[3], cutoff)


def highest(labels: Tensor) -> Tensor:
    """The highest label of each list, at least 0: (lists, 1)."""
    return F.pad(labels, (0, 1)).amax(dim=1, keepdim=True)


def gain(labels: Tensor, best: Tensor) -> Tensor:
    """The gain of a label in NDCG, 2^y − 1, divided by 2^best, so that no label from 0 to `best` overflows.

    NDCG and its gradient do not change when all gains of a list, and its ideal DCG, are divided by the same number.
    """
    return -torch.expm1(-labels * math.log(2)) * torch.exp2(labels - best)


def discount(ranks: Tensor) -> Tensor:
    """The discount of a rank in NDCG, D(r) = 1 / log2(1 + r), for ranks from 1."""
    return math.log(2) / torch.log1p(ranks)


def ranks_like(scores: Tensor, count: int) -> Tensor:
    """The ranks 1, 2, ..., count: (count,)."""
    return torch.arange(1, count + 1, dtype=scores.dtype, device=scores.device)


def ideal_dcg(labels: Tensor, cutoff: int | None) -> Tensor:
    """Z, the DCG@K of the documents sorted by label, of gains over 2^`highest`: (lists,); 1 if none has a gain."""
    count = labels.shape[1]
    gains = gain(labels.topk(min(cutoff or count, count), dim=1).values, highest(labels))
    dcg = (gains * discount(ranks_like(labels, gains.shape[1]))).sum(dim=1)
    return dcg.masked_fill(dcg == 0, 1)


def metric_from_ranked(ranked: Tensor, labels: Tensor, metric: Metric, *, gains: bool = False) -> Tensor:
    """The metric from the expected label at each rank (Thonet et al. 2021, equations p@k-a, ap-a and ndcg@k-a).

    The paper does not define RR: it is Σ_r e_r / r Π_{m<r} (1 − e_m) for the expected relevance e_r at rank r.

    `ranked`, (lists, ranks), is the expected `summed_labels(labels, metric, gains)` at each rank, and 0 beyond the last
    document; K ranks suffice. Labels are (lists, documents), 0 on padding. P@K divides by K even if the list is
    shorter. Returns (lists,); 0 if no document is relevant.
    """
    return unnormalised_metric(ranked, highest(labels), metric, gains) / normaliser(labels, metric)


def unnormalised_metric(ranked: Tensor, best: Tensor, metric: Metric, gains: bool = False) -> Tensor:
    """The metric before the division by `normaliser`: (lists,). `best` is `highest`; others as `metric_from_ranked`."""
    ranked = ranked[:, : metric.cutoff]
    ranks = ranks_like(ranked, ranked.shape[1])
    if metric.name == "ndcg":
        return ((ranked if gains else gain(ranked, best)) * discount(ranks)).sum(dim=1)
    if metric.name == "rr":
        none_above = F.pad((1 - ranked[:, :-1]).clamp_min(0), (1, 0), value=1).cumprod(dim=1)
        return (ranked * none_above / ranks).sum(dim=1)
    return ranked.sum(dim=1) if metric.name == "p" else (ranked * ranked.cumsum(dim=1) / ranks).sum(dim=1)


def normaliser(labels: Tensor, metric: Metric) -> Tensor:
    """The divisor of the metric, (lists,), above 0: Z for NDCG, K for P@K, 1 for RR, the relevant count for AP."""
    if metric.name == "ndcg":
        return ideal_dcg(labels, metric.cutoff)
    if metric.name == "rr":
        return labels.new_ones(labels.shape[:1])
    if metric.cutoff is not None:
        return labels.new_full(labels.shape[:1], metric.cutoff)
    return (labels >= 1).sum(dim=1).clamp_min(1).to(labels.dtype)


def summed_labels(labels: Tensor, metric: Metric, gains: bool = False) -> Tensor:
    """The values that the metric sums over ranks: labels or `gain` for NDCG, [label >= 1] for P@K, RR and AP."""
    if metric.name != "ndcg":
        return (labels >= 1).to(labels.dtype)
    return gain(labels, highest(labels)) if gains else labels


def metric_from_indicators(indicators: Tensor, labels: Tensor, metric: Metric) -> Tensor:
    """The metric from rank indicators, (lists, ranks, documents), and labels, (lists, documents): (lists,)."""
    # A sum of products, not a matrix product, which autocast would round to bf16.
    ranked = (indicators * summed_labels(labels, metric)[:, None, :]).sum(dim=2)
    return metric_from_ranked(ranked, labels, metric)


@torch.no_grad()
def exact_metric(scores: Tensor, labels: Tensor, mask: Tensor | None = None, metric: str = "ndcg") -> Tensor:
    """The true metric of the ranking by score; ties are in order of appearance.

    Scores, labels and mask are as for a loss; the metric is p@K, rr@K, ndcg@K, rr, ndcg or ap. Returns (lists,) without
    a gradient; 0 where no document is relevant. Raises ValueError for another metric, and as `mask_inputs`.

    >>> exact_metric(torch.tensor([[0.3, 0.7, 0.1]]), torch.tensor([[1, 0, 1]]), metric="ap")
    tensor([0.5833])
    """
    parsed = parse(metric)
    scores, labels, mask = mask_inputs(scores, labels, mask)
    labels = labels.clamp_min(0)
    return metric_from_ranked(summed_labels(labels, parsed).gather(1, by_score(scores, mask)), labels, parsed)
