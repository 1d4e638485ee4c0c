"""Variants of SmoothI that were studied for the choice of alpha; `register` makes them losses.

Each differs from `smoothi` in one way. They take NDCG and the other metrics as `smoothi` does, with delta 0.1.

- smoothi_bounded: the indicators of a document are divided by their sum over the ranks where that exceeds 1.
- smoothi_relative: alpha / std, with the standard deviation of the list's scores held constant in the backward pass.
- smoothi_scale_free: the same, differentiated through the standard deviation, so that no gradient moves the spread.
- smoothi_annealed: alpha rises geometrically from `start` to `alpha` while `lists` training lists are seen.
"""

from torch import Tensor

from rerank.losses.indicators import rank_indicators
from rerank.losses.kernels.smoothi import smoothi_metric
from rerank.losses.metrics import Metric, metric_from_indicators
from rerank.losses.registry import loss
from rerank.losses.smooth import metric_loss, smoothi

DELTA = 0.1
LEAST_STD = 0.05
"""The smallest standard deviation that alpha is divided by: ties would have an infinite alpha."""

seen_lists = 0
"""Lists that `smoothi_annealed` has had a gradient for since `restart`."""


def restart() -> None:
    """Tells `smoothi_annealed` that a new training begins."""
    global seen_lists
    seen_lists = 0


def standard_deviation(scores: Tensor, mask: Tensor) -> Tensor:
    """That of the real scores of each list (the population's), at least LEAST_STD: (lists, 1)."""
    count = mask.sum(dim=1, keepdim=True)
    mean = scores.masked_fill(~mask, 0).sum(dim=1, keepdim=True) / count
    variance = (scores - mean).masked_fill(~mask, 0).square().sum(dim=1, keepdim=True) / count
    return variance.clamp_min(LEAST_STD**2).sqrt()


def smoothi_bounded(
    scores: Tensor, labels: Tensor, mask: Tensor | None = None, metric: str = "ndcg", alpha: float = 1.0
) -> Tensor:
    """1 − metric of indicators of which no document has more than one in total."""

    def smooth_metric(scores: Tensor, labels: Tensor, mask: Tensor, metric: Metric) -> Tensor:
        lowest = scores.masked_fill(~mask, float("inf")).amin(dim=1, keepdim=True)
        rows = rank_indicators(scores - lowest, mask, metric.cutoff, alpha, DELTA)
        return metric_from_indicators(rows / rows.sum(dim=1, keepdim=True).clamp_min(1), labels, metric)

    return metric_loss(smooth_metric, scores, labels, mask, metric)


def smoothi_relative(
    scores: Tensor, labels: Tensor, mask: Tensor | None = None, metric: str = "ndcg", alpha: float = 1.0
) -> Tensor:
    """1 − metric of SmoothI with alpha over the standard deviation, which is constant in the backward pass."""

    def smooth_metric(scores: Tensor, labels: Tensor, mask: Tensor, metric: Metric) -> Tensor:
        std = standard_deviation(scores, mask).detach()
        return smoothi_metric(scores / std, labels, mask, metric, alpha, DELTA)

    return metric_loss(smooth_metric, scores, labels, mask, metric)


def smoothi_scale_free(
    scores: Tensor, labels: Tensor, mask: Tensor | None = None, metric: str = "ndcg", alpha: float = 1.0
) -> Tensor:
    """1 − metric of SmoothI on the scores over their standard deviation."""

    def smooth_metric(scores: Tensor, labels: Tensor, mask: Tensor, metric: Metric) -> Tensor:
        return smoothi_metric(scores / standard_deviation(scores, mask), labels, mask, metric, alpha, DELTA)

    return metric_loss(smooth_metric, scores, labels, mask, metric)


def smoothi_annealed(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    metric: str = "ndcg",
    alpha: float = 10.0,
    start: float = 1.0,
    lists: int = 240,
) -> Tensor:
    """1 − metric of SmoothI, with an alpha that rises from `start` to `alpha`."""
    global seen_lists
    share = min(1.0, seen_lists / lists)
    if scores.requires_grad:
        seen_lists += len(scores)
    return smoothi(scores, labels, mask, metric, start * (alpha / start) ** share)


VARIANTS = (smoothi_bounded, smoothi_relative, smoothi_scale_free, smoothi_annealed)


def register() -> None:
    """Adds the variants to the losses, by their names."""
    for variant in VARIANTS:
        loss(variant.__name__)(variant)
