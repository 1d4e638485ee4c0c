"""SmoothI and Approx: 1 − smooth metric of rank indicators or soft ranks, and the function shared by such losses."""

from collections.abc import Callable
from functools import partial

from torch import Tensor

from rerank.losses import indicators, metrics
from rerank.losses.inputs import check_positive, prepare_inputs
from rerank.losses.kernels.blocks import in_blocks
from rerank.losses.kernels.smoothi import smoothi_metric
from rerank.losses.metrics import Metric, metric_from_indicators
from rerank.losses.registry import loss
from rerank.losses.soft_ranks import approx_soft_ranks, metric_from_soft_ranks, tile_entries

SmoothMetric = Callable[[Tensor, Tensor, Tensor, Metric], Tensor]
"""Maps prepared scores, labels and mask, and the parsed metric, to (lists,)."""


@loss("smoothi", expected_gain=True)
def smoothi(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    metric: str = "ndcg",
    alpha: float = 1.0,
    delta: float = 0.1,
    stop_gradient: bool = True,
) -> Tensor:
    """1 − metric of SmoothI's rank indicators.

    I^r = softmax(α S p^r) is the indicator of the document at rank r, with p^1 = 1 and p^(r+1) = p^r (1 − I^r − δ). The
    smallest score of a list is subtracted from S first, because the theory needs positive scores. With the
    stop-gradient, value and gradient of P@K, NDCG and AP are computed in one pass over the ranks; the gradient can be
    taken once.

    Args:
        metric: p@K, rr@K, ndcg@K, rr, ndcg or ap. If K exceeds the number of documents, P@K still divides by K.
        alpha: inverse temperature, above 0; it multiplies the scores, so their spread matters.
        delta: how far a ranked document is pushed down for the following ranks, between 0 and 0.5.
        stop_gradient: whether p is constant in the backward pass; without it the gradient explodes for large alpha.

    Reference:
        Thonet, Cinar, Gaussier, Li and Renders: SmoothI: Smooth Rank Indicators for Differentiable IR Metrics, 2021
        (equations p@k-a, ap-a, ndcg@k-a; defI-modif for the stop-gradient).

    >>> import torch
    >>> smoothi(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0, 1, 0]]))
    tensor([0.4511])
    """
    indicators.check_recursion(alpha, delta)

    def with_graph(scores: Tensor, labels: Tensor, mask: Tensor, metric: Metric) -> Tensor:
        lowest = scores.masked_fill(~mask, float("inf")).amin(dim=1, keepdim=True)
        rows = indicators.rank_indicators(scores - lowest, mask, metric.cutoff, alpha, delta, stop_gradient)
        return metric_from_indicators(rows, labels, metric)

    in_one_pass = partial(smoothi_metric, alpha=alpha, delta=delta)
    is_rr = metrics.parse(metric).name == "rr"  # its derivative at a rank depends on all lower ranks
    entries = (lambda documents: documents**2) if is_rr and stop_gradient else None
    smooth_metric = in_one_pass if stop_gradient and not is_rr else with_graph
    return metric_loss(smooth_metric, scores, labels, mask, metric, entries)


@loss("approx")
def approx(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    metric: str = "ndcg",
    alpha: float = 1.0,
    beta: float = 10.0,
    cutoff_offset: float = 0.5,
) -> Tensor:
    """1 − metric of the soft ranks π_i = 1 + Σ_{j≠i} σ(α (S_j − S_i)).

    A cut-off K becomes the factor σ(β (K + cutoff_offset − π_i)). AP and RR count the relevant documents before i
    softly, with σ(β (π_i − π_j)).

    Args:
        metric: p@K, rr@K, ndcg@K, rr, ndcg or ap.
        alpha: inverse temperature of the soft ranks, above 0.
        beta: inverse temperature, above 0, of the soft cut-off at K and of the comparison of ranks in ap, rr and rr@K.
        cutoff_offset: the soft cut-off is at rank K + cutoff_offset.

    Reference:
        Qin, Liu and Li: A General Approximation Framework for Direct Optimization of Information Retrieval Measures,
        Information Retrieval 13, 2010.

    >>> import torch
    >>> approx(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0, 1, 0]]), alpha=100.0)
    tensor([0.3691])
    """
    smooth_metric = of_soft_ranks(partial(approx_soft_ranks, alpha=alpha), beta, cutoff_offset)
    return metric_loss(smooth_metric, scores, labels, mask, metric, tile_entries)


def of_soft_ranks(soft_ranks: Callable[[Tensor, Tensor], Tensor], beta: float, cutoff_offset: float) -> SmoothMetric:
    """The metric of soft ranks, as in `approx`; `soft_ranks` maps prepared scores and mask to (lists, documents)."""
    check_positive("beta", beta)

    def smooth_metric(scores: Tensor, labels: Tensor, mask: Tensor, metric: Metric) -> Tensor:
        return metric_from_soft_ranks(soft_ranks(scores, mask), labels, mask, metric, beta, cutoff_offset)

    return smooth_metric


def metric_loss(
    smooth_metric: SmoothMetric,
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    metric: str,
    entries: Callable[[int], int] | None = None,
) -> Tensor:
    """1 − smooth metric, 0 for degenerate lists. With `entries`, it is computed in blocks of lists by `in_blocks`."""
    parsed = metrics.parse(metric)
    scores, labels, mask, degenerate = prepare_inputs(scores, labels, mask)

    def metric_loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        return 1 - smooth_metric(scores, labels, mask, parsed)

    if entries is None:
        return metric_loss(scores, labels, mask).masked_fill(degenerate, 0)
    return in_blocks(metric_loss, scores, labels, mask, degenerate, entries)
