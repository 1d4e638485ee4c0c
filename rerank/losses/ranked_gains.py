"""NDCG from the expected gain at each rank of NeuralSort's indicators: PiRank and NeuralNDCG."""

from torch import Tensor

from rerank.losses import indicators, metrics
from rerank.losses.inputs import by_score, check_positive
from rerank.losses.kernels.neuralsort import band_entries, neuralsort_ranked
from rerank.losses.metrics import Metric, metric_from_ranked
from rerank.losses.registry import loss
from rerank.losses.smooth import metric_loss

SCALINGS = 50
"""Sinkhorn scalings of NeuralNDCG's indicators, as in the authors' code; theirs may stop earlier, at a tolerance."""


@loss("pirank")
def pirank(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    metric: str = "ndcg",
    temperature: float = 1.0,
    straight_through: bool = False,
) -> Tensor:
    """1 − metric of NeuralSort's rank indicators, with the expected gain at each rank.

    NDCG is Σ_r D(r) Σ_j I_j^r (2^{y_j} − 1) / Z, where `neuralsort` has the gain 2^e − 1 of the expected label e. For
    P@K and AP both losses are equal.

    Args:
        metric: p@K, ndcg@K, ndcg or ap.
        temperature: of the indicators, above 0; the smaller, the closer to the true ranking.
        straight_through: whether the value is that of the true ranking, with the gradient of the indicators.

    Reference:
        Swezey, Grover, Charron and Ermon: PiRank: Scalable Learning To Rank via Differentiable Sorting, NeurIPS 2021.
    """
    check_positive("temperature", temperature)

    def smooth_metric(scores: Tensor, labels: Tensor, mask: Tensor, metric: Metric) -> Tensor:
        gains = metrics.summed_gains(labels, metric)
        ranked = neuralsort_ranked(scores, gains, mask, temperature, metric.cutoff or scores.shape[1])
        if straight_through:
            true = gains.gather(1, by_score(scores, mask))[:, : metric.cutoff]
            ranked = ranked + (true - ranked).detach()
        return metric_from_ranked(ranked, labels, metric, gains=True)

    return metric_loss(smooth_metric, scores, labels, mask, metric, entries=band_entries)


@loss("neural_ndcg")
def neural_ndcg(
    scores: Tensor, labels: Tensor, mask: Tensor | None = None, metric: str = "ndcg", temperature: float = 1.0
) -> Tensor:
    """As `pirank`, with indicators that are scaled so that each rank has one document and each document one rank.

    The scaling (Sinkhorn) divides columns and rows by their sums in turn, 50 times, and ends with the rows.

    Args:
        metric: p@K, ndcg@K, ndcg or ap.
        temperature: of the indicators, above 0; the smaller, the closer to the true ranking.

    Reference:
        Pobrotyn and Białobrzeski: NeuralNDCG: Direct Optimisation of a Ranking Metric via Differentiable Relaxation of
        Sorting, 2021 (equation 8, the deterministic operator).
    """
    check_positive("temperature", temperature)

    def smooth_metric(scores: Tensor, labels: Tensor, mask: Tensor, metric: Metric) -> Tensor:
        rows = indicators.neuralsort_indicators(scores, mask, temperature)
        for _ in range(SCALINGS):
            for dim in (1, 2):
                sums = rows.sum(dim=dim, keepdim=True)
                rows = rows / sums.masked_fill(sums == 0, 1)  # padding has no indicator
        ranked = (rows * metrics.summed_gains(labels, metric)[:, None]).sum(dim=2)
        return metric_from_ranked(ranked[:, : metric.cutoff], labels, metric, gains=True)

    # The graph has the scaled indicators of every scaling.
    return metric_loss(
        smooth_metric, scores, labels, mask, metric, entries=lambda documents: 2 * SCALINGS * documents**2
    )
