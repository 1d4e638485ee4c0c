"""LambdaLoss: the logistic loss of pairs, each with a weight that follows from a metric and the current ranks."""

from collections.abc import Callable

import torch
from torch import Tensor

from rerank.losses.inputs import by_score, prepare_inputs
from rerank.losses.kernels.blocks import pair_sums, with_gradient
from rerank.losses.metrics import Metric, discount, gain, highest, ideal_dcg, parse, ranks_like
from rerank.losses.registry import loss

WEIGHTINGS = ("ndcg_loss2", "lambda_rank", "ndcg_loss2++")
"""The weights for NDCG, of the LambdaLoss paper; the first one is the default, and the only one for other metrics."""

Weights = Callable[[slice, slice, slice], Tensor]
"""From the slices of lists, upper and lower positions to the weights of that block, a new tensor of that shape.

A weight is above 0 where the upper position has the higher label, else below.
"""


@loss("lambda_loss")
def lambda_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    metric: str = "ndcg",
    weighting: str = "ndcg_loss2",
    mu: float = 10.0,
) -> Tensor:
    """LambdaLoss: the weighted logistic loss of pairs, the sum over y_i > y_j of w_ij ln(1 + exp(S_j − S_i)).

    The weights are constant in the backward pass. With r the rank by score (ties in order of appearance),
    D(r) = 1 / log2(1 + r) and N the number of documents of the list:

    - ndcg[@K]: w = N |G_i − G_j| d_ij if r_i ≤ K or r_j ≤ K, else 0, with G = (2^y − 1) / Z, Z the ideal DCG[@K], and
      d_ij by `weighting`: δ_ij = |D(|r_i − r_j|) − D(|r_i − r_j| + 1)| (ndcg_loss2), ρ_ij = |D(r_i) − D(r_j)|
      (lambda_rank), or μ δ_ij + ρ_ij (ndcg_loss2++)
    - p@K: w = 1 if exactly one of the two is relevant and exactly one has a rank up to K, else 0
    - ap, rr[@K]: w = the change of the metric if the two documents swap ranks, as in LambdaMART

    Args:
        metric: p@K, rr@K, ndcg@K, rr, ndcg or ap.
        weighting: the weights for ndcg[@K]: ndcg_loss2, lambda_rank or ndcg_loss2++.
        mu: μ of ndcg_loss2++.

    Raises:
        ValueError: there is no such metric or weighting, the metric has no such weighting, or μ is below 0.

    Reference:
        Wang, Li, Golbandi, Bendersky and Najork: The LambdaLoss Framework for Ranking Metric Optimization, CIKM 2018
        (the factor N is TF-Ranking's).

    >>> lambda_loss(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0, 1, 0]]))
    tensor([1.8009])
    """
    parsed = parse(metric)
    if weighting not in WEIGHTINGS:
        raise ValueError(f"weighting: expected {', '.join(WEIGHTINGS)}, got {weighting!r}")
    if parsed.name != "ndcg" and weighting != WEIGHTINGS[0]:
        raise ValueError(f"weighting {weighting!r}: is for ndcg and ndcg@K, got the metric {metric!r}; leave it out")
    if mu < 0:
        raise ValueError(f"mu: expected 0 or more, got {mu}")
    scores, labels, mask, degenerate = prepare_inputs(scores, labels, mask)
    with torch.no_grad():
        order = by_score(scores, mask)
        real = mask.gather(1, order)
        # Padding gets the lowest real score: no gap to it is above 0, so no exponential overflows.
        ranked = scores.gather(1, order)
        ranked = torch.where(real, ranked, ranked.masked_fill(~real, torch.inf).amin(dim=1, keepdim=True))
        ordered, present = labels.gather(1, order), real.to(scores.dtype)
        if parsed.name == "ndcg":
            weights = _ndcg_changes(ordered, real, parsed.cutoff, weighting, mu)
        else:
            weights = _binary_changes(ordered, parsed)

        def block(lists: slice, rows: slice, columns: slice) -> tuple[Tensor, Tensor]:
            gaps = ranked[lists, None, columns] - ranked[lists, rows, None]
            weight = weights(lists, rows, columns).mul_(present[lists, None, columns])
            if columns.start < rows.stop:
                square = slice(0, rows.stop - columns.start)
                gaps[:, :, square].triu_(rows.start - columns.start + 1)
                weight[:, :, square].triu_(rows.start - columns.start + 1)
            # ln(1 + e^x) if the row has the higher label, ln(1 + e^-x) = ln(1 + e^x) - x if the column has it.
            negative, weight = weight.clamp(max=0), weight.abs_()
            costs = gaps.exp().log1p_().mul_(weight).addcmul_(negative, gaps)
            return costs, gaps.sigmoid_().mul_(weight).add_(negative)

        positions = torch.arange(scores.shape[1], device=scores.device)
        firsts = positions + 1 if parsed.name != "p" else torch.full_like(positions, parsed.cutoff or 0)
        firsts = firsts[: parsed.cutoff]
        values, slopes = pair_sums(ranked, firsts.expand(len(scores), -1), block)
        gradient = torch.zeros_like(scores).scatter_(1, order, slopes)
    return with_gradient(scores, values, gradient).masked_fill(degenerate, 0)


def _ndcg_changes(labels: Tensor, real: Tensor, cutoff: int | None, weighting: str, mu: float) -> Weights:
    """The weights for NDCG@K; `labels` and `real`, True on real documents, are (lists, documents) by descending score.

    The caller applies the cut-off.
    """
    ranks = ranks_like(labels, labels.shape[1])
    gains = gain(labels, highest(labels)) * (real.sum(dim=1) / ideal_dcg(labels, cutoff))[:, None]
    at_rank = discount(ranks)
    drops = at_rank - discount(ranks + 1)
    # A view: column c of row (documents - r) holds the factor for the distance of rank c + 1 from rank r.
    apart = torch.cat([torch.zeros_like(drops), drops[:-1]]).unfold(0, len(ranks), 1)
    row_of = len(ranks) - ranks.long()

    def by_distance(upper: slice, lower: slice) -> Tensor:
        return apart[row_of[upper], lower]

    def by_rank(upper: slice, lower: slice) -> Tensor:
        return at_rank[upper, None] - at_rank[None, lower]

    def by_both(upper: slice, lower: slice) -> Tensor:
        return mu * by_distance(upper, lower) + by_rank(upper, lower)

    factors = dict(zip(WEIGHTINGS, (by_distance, by_rank, by_both), strict=True))[weighting]

    def changes(lists: slice, upper: slice, lower: slice) -> Tensor:
        return (gains[lists, upper, None] - gains[lists, None, lower]).mul_(factors(upper, lower))

    return changes


def _binary_changes(labels: Tensor, metric: Metric) -> Weights:
    """The weights for P@K, AP and RR[@K]; `labels` are (lists, documents) by descending score."""
    relevant, ranks = (labels >= 1).to(labels.dtype), ranks_like(labels, labels.shape[1])
    if metric.name == "p":
        return lambda lists, upper, lower: relevant[lists, upper, None] - relevant[lists, None, lower]
    if metric.name == "rr":
        return _rr_changes(relevant, ranks, metric.cutoff)
    at_upper, at_lower = _ap_changes(relevant, ranks)

    def changes(lists: slice, upper: slice, lower: slice) -> Tensor:
        change = at_upper[lists, upper, None] + at_lower[lists, None, lower]
        return change.mul_(relevant[lists, upper, None] - relevant[lists, None, lower])

    return changes


def _ap_changes(relevant: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
    """The two summands, one for each position, of |change of AP| when the documents at two positions swap.

    Let a < b be the positions, exactly one of them relevant, c_r the number of relevant documents down to rank r and
    h_r the sum of 1 / k over the relevant ranks k <= r. The swap changes the precision at a and at b, and by 1 / k at
    every relevant rank k between them: (c_a - [a is relevant] + 1) / a - c_b / b + h_(b-1) - h_a.
    """
    relevant_so_far = relevant.cumsum(dim=1)
    inverse = (relevant / ranks).cumsum(dim=1)
    at_upper = (relevant_so_far - relevant + 1) / ranks - inverse
    at_lower = -relevant_so_far / ranks + inverse - relevant / ranks
    return at_upper / relevant_so_far[:, -1:], at_lower / relevant_so_far[:, -1:]


def _rr_changes(relevant: Tensor, ranks: Tensor, cutoff: int | None) -> Weights:
    """The weights for RR: the change of RR when the documents at two positions swap.

    It is 0 unless the upper document is the first relevant one, or precedes it while the lower one is relevant.
    """
    value = 1 / ranks if cutoff is None else (1 / ranks) * (ranks <= cutoff)
    so_far = relevant.cumsum(dim=1)
    of_first = (relevant * (so_far == 1) * value).sum(dim=1)[:, None, None]
    of_second = (relevant * (so_far == 2) * value).sum(dim=1)[:, None, None]

    def changes(lists: slice, upper: slice, lower: slice) -> Tensor:
        above, below = relevant[lists, upper, None], relevant[lists, None, lower]
        first, second, at_lower = of_first[lists], of_second[lists], value[lower]
        lost = above * (so_far[lists, upper, None] == 1) * (1 - below) * (first - torch.maximum(second, at_lower))
        gained = (so_far[lists, upper, None] == 0) * below * (value[upper, None] - first)
        return lost - gained

    return changes
