"""LambdaLoss: the pairwise logistic loss, with each pair weighted by the change of a metric when it is swapped."""

from collections.abc import Callable

import torch
from torch import Tensor

from rerank.losses.inputs import by_score, prepare_inputs
from rerank.losses.kernels.blocks import pair_sums, with_gradient
from rerank.losses.metrics import Metric, discount, gain, ideal_dcg, parse, ranks_like
from rerank.losses.registry import loss


@loss("lambda_loss")
def lambda_loss(scores: Tensor, labels: Tensor, mask: Tensor | None = None, metric: str = "ndcg") -> Tensor:
    """LambdaLoss: the weighted logistic loss of pairs, the sum over y_i > y_j of w_ij ln(1 + exp(S_j − S_i)).

    The weights are constant in the backward pass. With r the rank by score (ties in order of appearance),
    D(r) = 1 / log2(1 + r) and N the number of documents of the list:

    - ndcg[@K]: w = N |G_i − G_j| |D(|r_i − r_j|) − D(|r_i − r_j| + 1)| if r_i ≤ K or r_j ≤ K, else 0, with
      G = (2^y − 1) / Z and Z the ideal DCG[@K]
    - p@K: w = 1 if exactly one of the two is relevant and exactly one has a rank up to K, else 0
    - ap: w = the change of AP if the two documents swap ranks (as in LambdaMART)

    Args:
        metric: p@K, ndcg@K, ndcg or ap.

    Reference:
        Wang, Li, Golbandi, Bendersky and Najork: The LambdaLoss Framework for Ranking Metric Optimization, CIKM 2018
        (NDCG-Loss2, as in TF-Ranking).
    """
    parsed = parse(metric)
    scores, labels, mask, degenerate = prepare_inputs(scores, labels, mask)
    with torch.no_grad():
        order = by_score(scores, mask)
        real = mask.gather(1, order)
        # No gap to a document of the padding is above 0, so that no exponential overflows before the weight is 0.
        ranked = scores.gather(1, order)
        ranked = torch.where(real, ranked, ranked.masked_fill(~real, torch.inf).amin(dim=1, keepdim=True))
        weights, present = _weights(labels.gather(1, order), real, parsed), real.to(scores.dtype)

        def block(lists: slice, rows: slice, columns: slice) -> tuple[Tensor, Tensor]:
            gaps = ranked[lists, None, columns] - ranked[lists, rows, None]
            weight = weights(lists, rows, columns).mul_(present[lists, None, columns])
            if columns.start < rows.stop:
                square = slice(0, rows.stop - columns.start)
                gaps[:, :, square].triu_(rows.start - columns.start + 1)
                weight[:, :, square].triu_(rows.start - columns.start + 1)
            # ln(1 + e^x) where the row is the better one, ln(1 + e^-x) = ln(1 + e^x) - x where the column is.
            negative, weight = weight.clamp(max=0), weight.abs_()
            costs = gaps.exp().log1p_().mul_(weight).addcmul_(negative, gaps)
            return costs, gaps.sigmoid_().mul_(weight).add_(negative)

        positions = torch.arange(scores.shape[1], device=scores.device)
        firsts = positions + 1 if parsed.name != "p" else torch.full_like(positions, parsed.cutoff or 0)
        firsts = firsts[: parsed.cutoff]
        values, slopes = pair_sums(ranked, firsts.expand(len(scores), -1), block)
        gradient = torch.zeros_like(scores).scatter_(1, order, slopes)
    return with_gradient(scores, values, gradient).masked_fill(degenerate, 0)


def _weights(labels: Tensor, real: Tensor, metric: Metric) -> Callable[[slice, slice, slice], Tensor]:
    """The weights w of a block of positions, above 0 where the upper position has the higher label, else below.

    Labels and real, True on real documents, are (lists, documents) by descending score; the cut-off is the caller's.
    Returns a function of the slices of lists, upper positions and lower positions to a new tensor of that shape.
    """
    relevant, ranks = (labels >= 1).to(labels.dtype), ranks_like(labels, labels.shape[1])
    if metric.name == "p":
        return lambda lists, upper, lower: relevant[lists, upper, None] - relevant[lists, None, lower]
    if metric.name == "ndcg":
        gains = gain(labels) * (real.sum(dim=1) / ideal_dcg(labels, metric.cutoff))[:, None]
        drops = discount(ranks) - discount(ranks + 1)
        # A view: row k holds what is k + 1 - documents, k + 2 - documents, ... apart, so that row documents - r is r's.
        apart = torch.cat([torch.zeros_like(drops), drops[:-1]]).unfold(0, len(ranks), 1)
        row_of = len(ranks) - ranks.long()

        def gain_changes(lists: slice, upper: slice, lower: slice) -> Tensor:
            return (gains[lists, upper, None] - gains[lists, None, lower]).mul_(apart[row_of[upper], lower])

        return gain_changes

    at_upper, at_lower = _ap_changes(relevant, ranks)

    def precision_changes(lists: slice, upper: slice, lower: slice) -> Tensor:
        change = at_upper[lists, upper, None] + at_lower[lists, None, lower]
        return change.mul_(relevant[lists, upper, None] - relevant[lists, None, lower])

    return precision_changes


def _ap_changes(relevant: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
    """Two summands, one of each position, of |change of AP| when the documents at two positions swap.

    With a < b the positions, one of them relevant, c_r the relevant documents down to r and h_r = sum over k <= r of
    b_k / k, the document that moves to or from a changes the precision there, the one at b likewise, and every relevant
    document between them loses or gains 1 / k: (c_a - b_a + 1) / a - c_b / b + h_(b-1) - h_a.
    """
    relevant_so_far = relevant.cumsum(dim=1)
    inverse = (relevant / ranks).cumsum(dim=1)
    at_upper = (relevant_so_far - relevant + 1) / ranks - inverse
    at_lower = -relevant_so_far / ranks + inverse - relevant / ranks
    return at_upper / relevant_so_far[:, -1:], at_lower / relevant_so_far[:, -1:]
