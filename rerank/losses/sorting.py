"""Losses with a relaxed sorting operator: NeuralSort, PiRank, NeuralNDCG, SoftSort, FastSort and optimal transport."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rerank.losses.indicators import neuralsort_indicators, scaled_indicators, soft_permutation
from rerank.losses.inputs import by_score, check_positive, tie_bounds
from rerank.losses.kernels.sorting import softsort_ranked
from rerank.losses.metrics import Metric, metric_from_ranked, ranks_like, summed_labels
from rerank.losses.registry import loss
from rerank.losses.smooth import SmoothMetric, metric_loss, of_soft_ranks
from rerank.losses.soft_ranks import fast_soft_ranks, tile_entries

ROWS = 128
"""Ranks of NeuralSort whose indicators are in memory at the same time."""


@loss("neuralsort", expected_gain=True)
def neuralsort(
    scores: Tensor, labels: Tensor, mask: Tensor | None = None, metric: str = "ndcg", temperature: float = 1.0
) -> Tensor:
    """1 − metric of NeuralSort's rank indicators.

    The indicator of rank r is softmax_j(((N + 1 − 2r) S_j − Σ_k |S_j − S_k|) / temperature).

    Args:
        metric: p@K, rr@K, ndcg@K, rr, ndcg or ap.
        temperature: above 0; the smaller, the closer to the true ranking.

    Reference:
        Grover, Wang, Zweig and Ermon: Stochastic Optimization of Sorting Networks via Continuous
        Relaxations, ICLR 2019.

    >>> neuralsort(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0, 1, 0]]))
    tensor([0.3874])
    """
    return metric_loss(_of_expected(_neuralsort_ranked, temperature), scores, labels, mask, metric, _tile_entries)


@loss("pirank")
def pirank(
    scores: Tensor, labels: Tensor, mask: Tensor | None = None, metric: str = "ndcg", temperature: float = 1.0
) -> Tensor:
    """1 − metric of NeuralSort's rank indicators, with the expected gain at each rank.

    NDCG is Σ_r D(r) Σ_j I_j^r (2^{y_j} − 1) / Z, whereas `neuralsort` uses the gain 2^e − 1 of the expected label e.
    For P@K, RR and AP both losses are equal.

    Args:
        metric: p@K, rr@K, ndcg@K, rr, ndcg or ap.
        temperature: of the indicators, above 0; the smaller, the closer to the true ranking.

    Reference:
        Swezey, Grover, Charron and Ermon: PiRank: Scalable Learning To Rank via Differentiable Sorting, NeurIPS 2021.

    >>> pirank(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0, 1, 0]]))
    tensor([0.2384])
    """
    smooth_metric = _of_expected(_neuralsort_ranked, temperature, gains=True)
    return metric_loss(smooth_metric, scores, labels, mask, metric, _tile_entries)


@loss("neural_ndcg")
def neural_ndcg(
    scores: Tensor, labels: Tensor, mask: Tensor | None = None, metric: str = "ndcg", temperature: float = 1.0
) -> Tensor:
    """`pirank` with indicators scaled so that each rank has one document and each document one rank.

    The scaling (Sinkhorn) divides columns and rows by their sums in turn, 50 times, and ends with the rows.

    Args:
        metric: p@K, rr@K, ndcg@K, rr, ndcg or ap.
        temperature: of the indicators, above 0; the smaller, the closer to the true ranking.

    Reference:
        Pobrotyn and Białobrzeski: NeuralNDCG: Direct Optimisation of a Ranking Metric via Differentiable Relaxation of
        Sorting, 2021 (equation 8, the deterministic operator).

    >>> neural_ndcg(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0, 1, 0]]))
    tensor([0.3135])
    """

    def scaled(scores: Tensor, labels: Tensor, mask: Tensor, temperature: float, count: int) -> Tensor:
        rows = scaled_indicators(neuralsort_indicators(scores, mask, temperature))
        return (rows * labels[:, None]).sum(dim=2)[:, :count]

    smooth_metric = _of_expected(scaled, temperature, gains=True)
    return metric_loss(smooth_metric, scores, labels, mask, metric, lambda documents: documents**2)


@loss("softsort", expected_gain=True)
def softsort(
    scores: Tensor, labels: Tensor, mask: Tensor | None = None, metric: str = "ndcg", temperature: float = 1.0
) -> Tensor:
    """1 − metric of SoftSort's rank indicators.

    The indicator of rank r is softmax_j(−|sort(S)_r − S_j| / temperature), for the descending sort.

    Args:
        metric: p@K, rr@K, ndcg@K, rr, ndcg or ap.
        temperature: above 0; the smaller, the closer to the true ranking.

    Reference:
        Prillo and Eisenschlos: SoftSort: A Continuous Relaxation for the argsort Operator, ICML 2020.

    >>> softsort(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0, 1, 0]]))
    tensor([0.4130])
    """
    smooth_metric = _of_expected(softsort_ranked, temperature)
    return metric_loss(smooth_metric, scores, labels, mask, metric, lambda documents: 2 * documents)


@loss("fastsort")
def fastsort(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    metric: str = "ndcg",
    beta: float = 10.0,
    cutoff_offset: float = 0.5,
    strength: float = 1.0,
) -> Tensor:
    """1 − metric of FastSort's soft ranks: the projection of −S / strength on the permutahedron of (N, ..., 1).

    The metric follows from the soft ranks as in `approx`.

    Args:
        metric: p@K, rr@K, ndcg@K, rr, ndcg or ap.
        beta: inverse temperature, above 0, of the soft cut-off at K and of the comparison of ranks in ap, rr and rr@K.
        cutoff_offset: the soft cut-off is at rank K + cutoff_offset.
        strength: above 0; the smaller, the closer to the true ranks, and the fewer documents have a gradient.

    Reference:
        Blondel, Teboul, Berthet and Djolonga: Fast Differentiable Sorting and Ranking, ICML 2020.

    >>> fastsort(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0, 1, 0]]))
    tensor([0.3691])
    """
    smooth_metric = of_soft_ranks(partial(fast_soft_ranks, strength=strength), beta, cutoff_offset)
    entries = tile_entries if metric.lower().startswith(("ap", "rr")) else None
    return metric_loss(smooth_metric, scores, labels, mask, metric, entries)


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
        metric: p@K, rr@K, ndcg@K, rr, ndcg or ap.
        beta: inverse temperature, above 0, of the soft cut-off at K and of the comparison of ranks in ap, rr and rr@K.
        cutoff_offset: the soft cut-off is at rank K + cutoff_offset.
        epsilon: weight of the entropic regularisation, above 0; the smaller, the closer to the true ranks.

    Raises:
        RuntimeError: the plan did not converge, for a very small epsilon.

    Reference:
        Cuturi, Teboul and Vert: Differentiable Ranking and Sorting using Optimal Transport, NeurIPS 2019.

    >>> ot(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0, 1, 0]]))
    tensor([0.3691])
    """

    def soft_ranks(scores: Tensor, mask: Tensor) -> Tensor:
        plan = soft_permutation(scores, mask, epsilon)
        return (plan * ranks_like(plan, plan.shape[1])[:, None]).sum(dim=1)

    # The plan is in float64, twice the memory of float32.
    return metric_loss(of_soft_ranks(soft_ranks, beta, cutoff_offset), scores, labels, mask, metric, lambda n: 2 * n**2)


def _of_expected(
    expected: Callable[[Tensor, Tensor, Tensor, float, int], Tensor], temperature: float, gains: bool = False
) -> SmoothMetric:
    """The metric of the expected labels, or gains, at each rank; `expected` is a function like `softsort_ranked`."""
    check_positive("temperature", temperature)

    def smooth_metric(scores: Tensor, labels: Tensor, mask: Tensor, metric: Metric) -> Tensor:
        summed = summed_labels(labels, metric, gains)
        ranked = expected(scores, summed, mask, temperature, metric.cutoff or scores.shape[1])
        return metric_from_ranked(ranked, labels, metric, gains=gains)

    return smooth_metric


def _neuralsort_ranked(scores: Tensor, labels: Tensor, mask: Tensor, temperature: float, count: int) -> Tensor:
    """The expected label at each of `count` ranks, (lists, ranks), with the indicators of `neuralsort_indicators`.

    The indicators of ROWS ranks at a time are in memory, and are computed again for the gradient. Logits are float64,
    because they are large relative to their differences.
    """
    order = by_score(scores, mask)
    real, documents = mask.gather(1, order), mask.sum(dim=1, keepdim=True)
    ranked, y = scores.gather(1, order).double(), labels.gather(1, order)
    columns = torch.stack([ranked, _spread(ranked, documents).masked_fill(~real, torch.inf)], dim=1) / temperature

    def expected(columns: Tensor, places: range) -> Tensor:
        weights = documents - 1 - 2 * torch.arange(places.start, places.stop, device=scores.device)
        logits = torch.stack([weights, -torch.ones_like(weights)], dim=2).double() @ columns
        rows = (logits - logits.detach().amax(dim=2, keepdim=True)).to(y.dtype).softmax(dim=2)
        return (rows @ y[:, :, None])[:, :, 0]

    ranks = min(count, scores.shape[1])
    tiles = [range(start, min(start + ROWS, ranks)) for start in range(0, ranks, ROWS)]
    values = [checkpoint(expected, columns, tile, use_reentrant=False, preserve_rng_state=False) for tile in tiles]
    found: Tensor = torch.cat(values, dim=1).masked_fill(~real[:, :ranks], 0)
    return found


def _spread(ranked: Tensor, documents: Tensor) -> Tensor:
    """sum_k |S_j - S_k|, 0 on padding, for descending scores of `documents` real ones; ties have no gradient."""
    first, last = tie_bounds(ranked)
    last = torch.minimum(last, documents - 1)
    sums = F.pad(ranked.cumsum(dim=1), (1, 0))
    above, below = sums.gather(1, first), sums[:, -1:] - sums.gather(1, last + 1)
    return above - below + (documents - 1 - last - first) * ranked


def _tile_entries(documents: int) -> int:
    """The size of the largest tile of one list in float64, for `blocks.in_blocks`."""
    return 2 * documents * min(documents, ROWS)
