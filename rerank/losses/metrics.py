"""P@K, NDCG@K, NDCG and AP, once: of what stands at each rank, or of the position of each document.

The exact metric is the first of the two fed with the labels in the order of the scores.
"""

import math
import re
from typing import NamedTuple

import torch
from torch import Tensor

from rerank.losses.inputs import by_score, check_positive, mask_inputs


class Metric(NamedTuple):
    """A parsed metric: `name` is p, ndcg or ap; `cutoff` is K, None where there is none."""

    name: str
    cutoff: int | None


def parse(metric: str) -> Metric:
    """The metric that a string names, in any case.

    >>> parse("ndcg@10")
    Metric(name='ndcg', cutoff=10)

    Raises:
        ValueError: it is none of p@K, ndcg@K, ndcg, ap, or K is below 1.
    """
    found = re.fullmatch(r"(p|ndcg)@(\d+)|(ndcg|ap)", metric.lower())
    cutoff = int(found[2]) if found and found[2] else None
    if found is None or cutoff == 0:
        raise ValueError(f"metric {metric!r}: expected p@K, ndcg@K, ndcg or ap, with K of 1 or more")
    return Metric(found[1] or found[3], cutoff)


def gain(labels: Tensor) -> Tensor:
    """2^y - 1."""
    return torch.expm1(labels * math.log(2))


def discount(ranks: Tensor) -> Tensor:
    """D(r) = 1 / log2(1 + r), for ranks or positions from 1."""
    return math.log(2) / torch.log1p(ranks)


def ranks_like(scores: Tensor, count: int) -> Tensor:
    """The ranks 1, 2, ..., count: (count,)."""
    return torch.arange(1, count + 1, dtype=scores.dtype, device=scores.device)


def ideal_dcg(labels: Tensor, cutoff: int | None) -> Tensor:
    """Z, the DCG@K of the documents by descending label: (lists,); 1 where no document has a gain."""
    count = labels.shape[1]
    best = gain(labels.topk(min(cutoff or count, count), dim=1).values)
    dcg = (best * discount(ranks_like(labels, best.shape[1]))).sum(dim=1)
    return dcg.masked_fill(dcg == 0, 1)


def metric_from_ranked(ranked_labels: Tensor, ranked_relevance: Tensor, labels: Tensor, metric: Metric) -> Tensor:
    """The metric of what stands at each rank (Thonet et al. 2021, eq:p@k-a, eq:ap-a and eq:ndcg@k-a).

    Args:
        ranked_labels: (lists, ranks), e_r, the expected label at rank r; 0 beyond the documents; K ranks suffice.
        ranked_relevance: (lists, ranks), b_r, the expected [label >= 1] at rank r, likewise.
        labels: (lists, documents), 0 on padding.
        metric: P@K divides by K even where the list is shorter.

    Returns:
        (lists,); 0 where no document is relevant.
    """
    return unnormalised_metric(ranked_labels, ranked_relevance, metric) / normaliser(labels, metric)


def unnormalised_metric(ranked_labels: Tensor, ranked_relevance: Tensor, metric: Metric) -> Tensor:
    """The metric times `normaliser`: (lists,). Arguments as `metric_from_ranked`."""
    name, cutoff = metric
    ranks = ranks_like(ranked_labels, ranked_labels.shape[1])[:cutoff]
    if name == "ndcg":
        return (gain(ranked_labels[:, :cutoff]) * discount(ranks)).sum(dim=1)
    if name == "p":
        return ranked_relevance[:, :cutoff].sum(dim=1)
    return (ranked_relevance * ranked_relevance.cumsum(dim=1) / ranks).sum(dim=1)


def normaliser(labels: Tensor, metric: Metric) -> Tensor:
    """What the metric divides by: Z for NDCG, K for P@K, the number of relevant documents for AP; (lists,), above 0."""
    if metric.name == "ndcg":
        return ideal_dcg(labels, metric.cutoff)
    if metric.cutoff is not None:
        return labels.new_full(labels.shape[:1], metric.cutoff)
    return (labels >= 1).sum(dim=1).clamp_min(1).to(labels.dtype)


def summed_labels(labels: Tensor, metric: Metric) -> Tensor:
    """What the metric sums at each rank: the labels for NDCG, [label >= 1] for P@K and AP."""
    return labels if metric.name == "ndcg" else (labels >= 1).to(labels.dtype)


def metric_from_indicators(indicators: Tensor, labels: Tensor, metric: Metric) -> Tensor:
    """The metric of rank indicators (lists, ranks, documents) and labels (lists, documents): `metric_from_ranked`."""
    # Sums of products, not matrix products, which autocast would round to bf16.
    ranked_labels = (indicators * labels[:, None, :]).sum(dim=2)
    ranked_relevance = (indicators * (labels >= 1)[:, None, :]).sum(dim=2)
    return metric_from_ranked(ranked_labels, ranked_relevance, labels, metric)


def metric_from_soft_ranks(
    positions: Tensor, labels: Tensor, mask: Tensor, metric: Metric, beta: float, cutoff_offset: float
) -> Tensor:
    """The metric of soft positions (Qin et al. 2010).

    Args:
        positions: (lists, documents), 1 is best.
        labels: (lists, documents), 0 on padding.
        mask: (lists, documents).
        metric: what to compute.
        beta: the steepness, above 0, of the soft "within K" (P@K, NDCG@K) and of the soft "before" (AP).
        cutoff_offset: where between K and K + 1 the cut lies.

    Returns:
        (lists,).

    Raises:
        ValueError: beta is out of range.
    """
    check_positive("beta", beta)
    name, cutoff = metric
    positions = positions.masked_fill(~mask, 1)
    relevant = (labels >= 1).to(positions.dtype)
    if name == "ap":
        # The document itself adds sigma(0) = 1/2 to the sum over the others.
        before = torch.sigmoid(beta * (positions[:, :, None] - positions[:, None, :]))
        seen = 0.5 + (relevant[:, None, :] * before).sum(dim=2)
        return (relevant / positions * seen).sum(dim=1) / relevant.sum(dim=1).clamp_min(1)
    within = torch.ones_like(positions)
    if cutoff is not None:
        within = torch.sigmoid(beta * (cutoff + cutoff_offset - positions))
    if name == "p" and cutoff is not None:
        return (relevant * within).sum(dim=1) / cutoff
    return (gain(labels) * discount(positions) * within).sum(dim=1) / ideal_dcg(labels, cutoff)


@torch.no_grad()
def exact_metric(scores: Tensor, labels: Tensor, mask: Tensor | None = None, metric: str = "ndcg") -> Tensor:
    """The true metric of the ranking by score, ties in order of appearance.

    Args:
        scores: (lists, documents).
        labels: (lists, documents); NDCG has gain 2^label - 1, the relevant have a label of 1 or more.
        mask: (lists, documents), True on real documents.
        metric: p@K, ndcg@K, ndcg or ap.

    Returns:
        (lists,), without a gradient; 0 where no document is relevant.

    Raises:
        ValueError: the metric or the shapes are wrong.

    >>> exact_metric(torch.tensor([[0.3, 0.7, 0.1]]), torch.tensor([[1, 0, 1]]), metric="ap")
    tensor([0.5833])
    """
    wanted = parse(metric)
    scores, labels, mask = mask_inputs(scores, labels, mask)
    ranked = labels.gather(1, by_score(scores, mask))
    return metric_from_ranked(ranked, (ranked >= 1).to(ranked.dtype), labels, wanted)
