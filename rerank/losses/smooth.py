"""The losses that are 1 - a smooth metric: an operator (indicators or positions), then the metric of its result."""

import torch
from torch import Tensor

from rerank.losses import indicators, metrics
from rerank.losses import soft_ranks as positions
from rerank.losses.inputs import check_positive, prepared
from rerank.losses.kernels.blocks import in_blocks
from rerank.losses.kernels.neuralsort import band_entries, neuralsort_ranked
from rerank.losses.kernels.smoothi import metric_of_ranks
from rerank.losses.kernels.soft_ranks import tile_entries, tiled_metric, tiled_positions
from rerank.losses.kernels.softsort import scan_entries, softsort_ranked


def smoothi(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    metric: str = "ndcg",
    alpha: float = 1.0,
    delta: float = 0.1,
    stop_gradient: bool = True,
) -> Tensor:
    """1 - the metric of SmoothI's rank indicators (Thonet et al. 2021, eq:p@k-a, eq:ap-a, eq:ndcg@k-a).

    The list's smallest score is subtracted first, as the theory needs positive scores. With the stop-gradient the
    gradient comes with the value, in one pass over the ranks (`smoothi_pass`), and can be taken once.

    Args:
        scores: (lists, documents).
        labels: (lists, documents), graded; 1 and above is relevant for P@K and AP.
        mask: (lists, documents), True on real documents; masked entries may hold anything.
        metric: p@K, ndcg@K, ndcg or ap. K beyond the documents is their number, but P@K still divides by K.
        alpha: the inverse temperature, above 0; it multiplies the scores, so their spread matters.
        delta: between 0 and 0.5, both excluded.
        stop_gradient: keep the recursion out of the backward pass (eq:defI-modif); without it the gradient explodes.

    Returns:
        (lists,); 0 where a list has no relevant document or fewer than two documents.

    Raises:
        ValueError: a hyperparameter is out of range.
    """
    wanted = metrics.parse(metric)
    scores, labels, mask, idle = prepared(scores, labels, mask)
    indicators.check_recursion(alpha, delta)
    if stop_gradient:
        return (1 - metric_of_ranks(scores, labels, mask, wanted, alpha, delta)).masked_fill(idle, 0)
    lowest = scores.masked_fill(~mask, torch.inf).amin(dim=1, keepdim=True)
    rows = indicators.rank_indicators(scores - lowest, mask, wanted.cutoff, alpha, delta, stop_gradient=False)
    return (1 - metrics.of_indicators(rows, labels, wanted)).masked_fill(idle, 0)


def neuralsort(
    scores: Tensor, labels: Tensor, mask: Tensor | None = None, metric: str = "ndcg", temperature: float = 1.0
) -> Tensor:
    """1 - the metric of NeuralSort's permutation, `indicators.neuralsort` (Grover et al. 2019).

    Arguments and result as `smoothi`; `temperature` is above 0.
    """
    wanted = metrics.parse(metric)
    scores, labels, mask, idle = prepared(scores, labels, mask)
    check_positive("temperature", temperature)

    def loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        target = metrics.target(labels, wanted)
        ranked = neuralsort_ranked(scores, target, mask, temperature, wanted.cutoff or scores.shape[1])
        return 1 - metrics.of_ranks(ranked, ranked, labels, wanted)

    return in_blocks(loss, scores, labels, mask, idle, band_entries)


def softsort(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    metric: str = "ndcg",
    temperature: float = 1.0,
    power: float = 1.0,
) -> Tensor:
    """1 - the metric of SoftSort's permutation, `indicators.softsort` (Prillo and Eisenschlos 2020).

    Arguments and result as `smoothi`; `temperature` and `power` are above 0.
    """
    wanted = metrics.parse(metric)
    scores, labels, mask, idle = prepared(scores, labels, mask)
    check_positive("temperature", temperature)
    check_positive("power", power)

    def loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        target = metrics.target(labels, wanted)
        ranked = softsort_ranked(scores, target, mask, temperature, wanted.cutoff or scores.shape[1])
        return 1 - metrics.of_ranks(ranked, ranked, labels, wanted)

    def powered(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        rows = indicators.softsort(scores, mask, temperature, power, wanted.cutoff)
        return 1 - metrics.of_indicators(rows, labels, wanted)

    if power != 1:
        return in_blocks(powered, scores, labels, mask, idle, lambda documents: documents**2)
    return in_blocks(loss, scores, labels, mask, idle, scan_entries)


def approx(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    metric: str = "ndcg",
    alpha: float = 1.0,
    beta: float = 10.0,
    cutoff_offset: float = 0.5,
) -> Tensor:
    """1 - the metric of soft positions pi_i = 1 + sum over j != i of sigma(alpha (S_j - S_i)) (Qin et al. 2010).

    Arguments and result as `smoothi`, and:

    Args:
        scores: (lists, documents).
        labels: (lists, documents).
        mask: (lists, documents).
        metric: p@K, ndcg@K, ndcg or ap.
        alpha: the steepness of the positions, above 0.
        beta: the steepness, above 0, of "within K" in p@K and ndcg@K and of "before" in ap; ndcg does not use it.
        cutoff_offset: "within K" is sigma(beta (K + cutoff_offset - pi)).
    """
    wanted = metrics.parse(metric)
    scores, labels, mask, idle = prepared(scores, labels, mask)
    check_positive("alpha", alpha)
    check_positive("beta", beta)

    def loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        places = tiled_positions(scores, mask, alpha)
        return 1 - tiled_metric(places, labels, mask, wanted, beta, cutoff_offset)

    return in_blocks(loss, scores, labels, mask, idle, tile_entries)


def fastsort(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    metric: str = "ndcg",
    regularization: str = "l2",
    strength: float = 1.0,
    beta: float = 10.0,
    cutoff_offset: float = 0.5,
) -> Tensor:
    """1 - the metric of the projection on the permutahedron, `positions.fast_positions` (Blondel et al. 2020).

    Arguments and result as `approx`; `regularization` is l2 or kl, `strength` is above 0.
    """
    wanted = metrics.parse(metric)
    scores, labels, mask, idle = prepared(scores, labels, mask)
    check_positive("beta", beta)

    def loss(places: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        return 1 - tiled_metric(places, labels, mask, wanted, beta, cutoff_offset)

    places = positions.fast_positions(scores, mask, regularization, strength)
    if wanted.name != "ap":
        return loss(places, labels, mask).masked_fill(idle, 0)
    return in_blocks(loss, places, labels, mask, idle, tile_entries)


def ot(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    metric: str = "ndcg",
    epsilon: float = 0.01,
    beta: float = 10.0,
    cutoff_offset: float = 0.5,
) -> Tensor:
    """1 - the metric of the positions sum_m m N P_im of a transport plan P, `indicators.soft_permutation`.

    Cuturi et al. 2019. Arguments and result as `approx`; `epsilon` is 1e-9 or more.
    """
    wanted = metrics.parse(metric)
    scores, labels, mask, idle = prepared(scores, labels, mask)
    indicators.check_epsilon(epsilon)
    check_positive("beta", beta)

    def loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        plan = indicators.soft_permutation(scores, mask, epsilon)
        places = (plan * metrics.ranks_like(plan, plan.shape[1])[:, None]).sum(dim=1)
        return 1 - tiled_metric(places, labels, mask, wanted, beta, cutoff_offset)

    # A plan is in float64: twice the numbers.
    return in_blocks(loss, scores, labels, mask, idle, lambda documents: 2 * documents**2)
