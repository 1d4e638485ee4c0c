"""Losses of the form 1 − smooth metric: rank indicators or soft ranks take the place of the ranking in the metric."""

from collections.abc import Callable

from torch import Tensor

from rerank.losses import indicators, metrics
from rerank.losses.inputs import check_positive, prepare_inputs
from rerank.losses.kernels.blocks import in_blocks
from rerank.losses.kernels.neuralsort import band_entries, neuralsort_ranked
from rerank.losses.kernels.smoothi import smoothi_metric
from rerank.losses.kernels.soft_ranks import tile_entries, tiled_metric, tiled_soft_ranks
from rerank.losses.kernels.softsort import scan_entries, softsort_ranked
from rerank.losses.metrics import Metric, metric_from_indicators, metric_from_ranked
from rerank.losses.registry import loss
from rerank.losses.soft_ranks import fast_soft_ranks


@loss("smoothi")
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
    smallest score of a list is subtracted from S first, as the theory needs positive scores. With the stop-gradient,
    value and gradient are computed in one pass over the ranks, and the gradient can be taken once.

    Args:
        scores: (lists, documents).
        labels: (lists, documents), graded; 1 and above is relevant for P@K and AP.
        mask: (lists, documents), True on real documents; masked entries may hold anything.
        metric: p@K, ndcg@K, ndcg or ap. If K exceeds the number of documents, P@K still divides by K.
        alpha: inverse temperature, above 0; it multiplies the scores, so their spread matters.
        delta: how far a ranked document is pushed down for the following ranks, between 0 and 0.5.
        stop_gradient: whether p is constant in the backward pass; without it the gradient explodes for large alpha.

    Returns:
        (lists,); 0 for a list without a relevant document or with fewer than two documents.

    Raises:
        ValueError: a hyperparameter is out of range, or the shapes differ.

    Reference:
        Thonet, Cinar, Gaussier, Li and Renders: SmoothI: Smooth Rank Indicators for Differentiable IR Metrics, 2021
        (equations p@k-a, ap-a, ndcg@k-a; defI-modif for the stop-gradient).
    """
    indicators.check_recursion(alpha, delta)

    def with_stop_gradient(scores: Tensor, labels: Tensor, mask: Tensor, metric: Metric) -> Tensor:
        return smoothi_metric(scores, labels, mask, metric, alpha, delta)

    def with_graph(scores: Tensor, labels: Tensor, mask: Tensor, metric: Metric) -> Tensor:
        lowest = scores.masked_fill(~mask, float("inf")).amin(dim=1, keepdim=True)
        rows = indicators.rank_indicators(scores - lowest, mask, metric.cutoff, alpha, delta, stop_gradient=False)
        return metric_from_indicators(rows, labels, metric)

    return _metric_loss(with_stop_gradient if stop_gradient else with_graph, scores, labels, mask, metric)


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

    A cut-off K becomes the factor σ(β (K + cutoff_offset − π_i)); AP counts the relevant documents before i softly, by
    σ(β (π_i − π_j)).

    Args:
        scores: (lists, documents).
        labels: (lists, documents), graded; 1 and above is relevant for P@K and AP.
        mask: (lists, documents), True on real documents; masked entries may hold anything.
        metric: p@K, ndcg@K, ndcg or ap.
        alpha: inverse temperature of the soft ranks, above 0.
        beta: inverse temperature, above 0, of the cut-off in p@K and ndcg@K and of the comparison of ranks in ap.
        cutoff_offset: the soft cut-off is at rank K + cutoff_offset.

    Returns:
        (lists,); 0 for a list without a relevant document or with fewer than two documents.

    Raises:
        ValueError: a hyperparameter is out of range, or the shapes differ.

    Reference:
        Qin, Liu and Li: A General Approximation Framework for Direct Optimization of Information Retrieval Measures,
        Information Retrieval 13, 2010.
    """
    check_positive("alpha", alpha)
    check_positive("beta", beta)

    def smooth_metric(scores: Tensor, labels: Tensor, mask: Tensor, metric: Metric) -> Tensor:
        ranks = tiled_soft_ranks(scores, mask, alpha)
        return tiled_metric(ranks, labels, mask, metric, beta, cutoff_offset)

    return _metric_loss(smooth_metric, scores, labels, mask, metric, entries=tile_entries)


@loss("neuralsort")
def neuralsort(
    scores: Tensor, labels: Tensor, mask: Tensor | None = None, metric: str = "ndcg", temperature: float = 1.0
) -> Tensor:
    """1 − metric of NeuralSort's rank indicators.

    The indicator of rank r is softmax_j(((N + 1 − 2r) S_j − Σ_k |S_j − S_k|) / temperature).

    Args:
        scores: (lists, documents).
        labels: (lists, documents), graded; 1 and above is relevant for P@K and AP.
        mask: (lists, documents), True on real documents; masked entries may hold anything.
        metric: p@K, ndcg@K, ndcg or ap.
        temperature: above 0; the smaller, the closer to the true ranking.

    Returns:
        (lists,); 0 for a list without a relevant document or with fewer than two documents.

    Raises:
        ValueError: a hyperparameter is out of range, or the shapes differ.

    Reference:
        Grover, Wang, Zweig and Ermon: Stochastic Optimization of Sorting Networks via Continuous
        Relaxations, ICLR 2019.
    """
    check_positive("temperature", temperature)

    def smooth_metric(scores: Tensor, labels: Tensor, mask: Tensor, metric: Metric) -> Tensor:
        summed = metrics.summed_labels(labels, metric)
        ranked = neuralsort_ranked(scores, summed, mask, temperature, metric.cutoff or scores.shape[1])
        return metric_from_ranked(ranked, ranked, labels, metric)

    return _metric_loss(smooth_metric, scores, labels, mask, metric, entries=band_entries)


@loss("softsort")
def softsort(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    metric: str = "ndcg",
    temperature: float = 1.0,
    power: float = 1.0,
) -> Tensor:
    """1 − metric of SoftSort's rank indicators.

    The indicator of rank r is softmax_j(−|sort(S)_r − S_j|^power / temperature), for the descending sort.

    Args:
        scores: (lists, documents).
        labels: (lists, documents), graded; 1 and above is relevant for P@K and AP.
        mask: (lists, documents), True on real documents; masked entries may hold anything.
        metric: p@K, ndcg@K, ndcg or ap.
        temperature: above 0; the smaller, the closer to the true ranking.
        power: exponent of the distance between two scores, above 0; 1 takes much less time and memory.

    Returns:
        (lists,); 0 for a list without a relevant document or with fewer than two documents.

    Raises:
        ValueError: a hyperparameter is out of range, or the shapes differ.

    Reference:
        Prillo and Eisenschlos: SoftSort: A Continuous Relaxation for the argsort Operator, ICML 2020.
    """
    check_positive("temperature", temperature)
    check_positive("power", power)

    def of_distances(scores: Tensor, labels: Tensor, mask: Tensor, metric: Metric) -> Tensor:
        summed = metrics.summed_labels(labels, metric)
        ranked = softsort_ranked(scores, summed, mask, temperature, metric.cutoff or scores.shape[1])
        return metric_from_ranked(ranked, ranked, labels, metric)

    def of_powers(scores: Tensor, labels: Tensor, mask: Tensor, metric: Metric) -> Tensor:
        rows = indicators.softsort_indicators(scores, mask, temperature, power, metric.cutoff)
        return metric_from_indicators(rows, labels, metric)

    if power == 1:
        return _metric_loss(of_distances, scores, labels, mask, metric, entries=scan_entries)
    return _metric_loss(of_powers, scores, labels, mask, metric, entries=lambda documents: documents**2)


@loss("fastsort")
def fastsort(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    metric: str = "ndcg",
    beta: float = 10.0,
    cutoff_offset: float = 0.5,
    regularization: str = "l2",
    strength: float = 1.0,
) -> Tensor:
    """1 − metric of FastSort's soft ranks: the projection of −S / strength on the permutahedron of (N, ..., 1).

    The metric follows from the soft ranks as in `approx`.

    Args:
        scores: (lists, documents).
        labels: (lists, documents), graded; 1 and above is relevant for P@K and AP.
        mask: (lists, documents), True on real documents; masked entries may hold anything.
        metric: p@K, ndcg@K, ndcg or ap.
        beta: inverse temperature, above 0, of the cut-off in p@K and ndcg@K and of the comparison of ranks in ap.
        cutoff_offset: the soft cut-off is at rank K + cutoff_offset.
        regularization: l2 or kl, the distance of the projection.
        strength: above 0; the smaller, the closer to the true ranks, and the fewer documents have a gradient.

    Returns:
        (lists,); 0 for a list without a relevant document or with fewer than two documents.

    Raises:
        ValueError: a hyperparameter is out of range, or the shapes differ.

    Reference:
        Blondel, Teboul, Berthet and Djolonga: Fast Differentiable Sorting and Ranking, ICML 2020.
    """
    check_positive("beta", beta)

    def soft_ranks(scores: Tensor, mask: Tensor) -> Tensor:
        return fast_soft_ranks(scores, mask, regularization, strength)

    def smooth_metric(ranks: Tensor, labels: Tensor, mask: Tensor, metric: Metric) -> Tensor:
        return tiled_metric(ranks, labels, mask, metric, beta, cutoff_offset)

    entries = tile_entries if metric.lower() == "ap" else None
    return _metric_loss(smooth_metric, scores, labels, mask, metric, entries, operator=soft_ranks)


@loss("ot")
def ot(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    metric: str = "ndcg",
    beta: float = 10.0,
    cutoff_offset: float = 0.5,
    epsilon: float = 0.01,
) -> Tensor:
    """1 − metric of the soft ranks N Σ_m m P_im of an optimal transport plan P from documents to ranks.

    The plan is `indicators.soft_permutation`; the metric follows from the soft ranks as in `approx`.

    Args:
        scores: (lists, documents).
        labels: (lists, documents), graded; 1 and above is relevant for P@K and AP.
        mask: (lists, documents), True on real documents; masked entries may hold anything.
        metric: p@K, ndcg@K, ndcg or ap.
        beta: inverse temperature, above 0, of the cut-off in p@K and ndcg@K and of the comparison of ranks in ap.
        cutoff_offset: the soft cut-off is at rank K + cutoff_offset.
        epsilon: weight of the entropic regularisation, 1e-9 or more; the smaller, the closer to the true ranks.

    Returns:
        (lists,); 0 for a list without a relevant document or with fewer than two documents.

    Raises:
        ValueError: a hyperparameter is out of range, or the shapes differ.
        RuntimeError: the plan did not converge, for a very small epsilon.

    Reference:
        Cuturi, Teboul and Vert: Differentiable Ranking and Sorting using Optimal Transport, NeurIPS 2019.
    """
    indicators.check_epsilon(epsilon)
    check_positive("beta", beta)

    def smooth_metric(scores: Tensor, labels: Tensor, mask: Tensor, metric: Metric) -> Tensor:
        plan = indicators.soft_permutation(scores, mask, epsilon)
        ranks = (plan * metrics.ranks_like(plan, plan.shape[1])[:, None]).sum(dim=1)
        return tiled_metric(ranks, labels, mask, metric, beta, cutoff_offset)

    # A plan is in float64, which takes the memory of two float32 numbers.
    return _metric_loss(smooth_metric, scores, labels, mask, metric, entries=lambda documents: 2 * documents**2)


def _metric_loss(
    smooth_metric: Callable[[Tensor, Tensor, Tensor, Metric], Tensor],
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    metric: str,
    entries: Callable[[int], int] | None = None,
    operator: Callable[[Tensor, Tensor], Tensor] = lambda scores, mask: scores,
) -> Tensor:
    """1 − smooth metric, and 0 for degenerate lists.

    Args:
        smooth_metric: from prepared scores, labels and mask, and the parsed metric, to (lists,).
        scores: (lists, documents).
        labels: (lists, documents).
        mask: (lists, documents).
        metric: p@K, ndcg@K, ndcg or ap.
        entries: computes the metric in blocks of lists, as in `in_blocks`; None if it needs little memory itself.
        operator: applied to the prepared scores and mask of all lists, before the blocks.
    """
    parsed = metrics.parse(metric)
    scores, labels, mask, degenerate = prepare_inputs(scores, labels, mask)

    def metric_loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        return 1 - smooth_metric(scores, labels, mask, parsed)

    operand = operator(scores, mask)
    if entries is None:
        return metric_loss(operand, labels, mask).masked_fill(degenerate, 0)
    return in_blocks(metric_loss, operand, labels, mask, degenerate, entries)
