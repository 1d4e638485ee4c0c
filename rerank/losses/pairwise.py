"""Pairwise losses: the mean, or a weighted sum, of a function of S_i − S_j over the pairs of a list with y_i > y_j."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from rerank.losses.inputs import by_score, prepare_inputs
from rerank.losses.kernels.blocks import pair_sums, with_gradient
from rerank.losses.metrics import Metric, discount, gain, highest, ideal_dcg, parse, ranks_like
from rerank.losses.registry import loss


@loss("hinge")
def hinge(
    scores: Tensor, labels: Tensor, mask: Tensor | None = None, margin: float = 1.0, pairs: str = "all"
) -> Tensor:
    """Pairwise hinge loss: the mean over pairs of max(0, margin − (S_i − S_j)).

    Args:
        margin: difference of scores from which a pair costs nothing.
        pairs: all: every two documents with y_i > y_j; matched: the first relevant document with the first
            non-relevant one, the second with the second, and so on.

    Reference:
        Herbrich, Graepel and Obermayer: Large Margin Rank Boundaries for Ordinal Regression, 2000.

    >>> hinge(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0, 1, 0]]))
    tensor([1.])
    """
    if pairs not in ("all", "matched"):
        raise ValueError(f"pairs must be all or matched, got {pairs}")
    if pairs == "matched":
        return _matched_hinge(scores, labels, mask, margin)

    def cost(gaps: Tensor) -> tuple[Tensor, Tensor]:
        costs = torch.relu(gaps + margin)
        return costs, (costs > 0).to(costs.dtype)

    return _mean_over_pairs(cost, scores, labels, mask)


@loss("ranknet")
def ranknet(scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """RankNet: the mean over pairs of ln(1 + exp(S_j − S_i)).

    Reference:
        Burges, Shaked, Renshaw, Lazier, Deeds, Hamilton and Hullender: Learning to Rank using Gradient Descent, ICML
        2005.

    >>> ranknet(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0, 1, 0]]))
    tensor([0.8133])
    """
    return _mean_over_pairs(lambda gaps: (-F.logsigmoid(-gaps), torch.sigmoid(gaps)), scores, labels, mask)


@loss("pairwise_softmax")
def pairwise_softmax(scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """Pairwise softmax loss, as in CEDR's public code: the mean over pairs of 1 − softmax([S_i, S_j])_i.

    Reference:
        MacAvaney, Yates, Cohan and Goharian: CEDR: Contextualized Embeddings for Document Ranking, SIGIR 2019.

    >>> pairwise_softmax(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0, 1, 0]]))
    tensor([0.5000])
    """

    def cost(gaps: Tensor) -> tuple[Tensor, Tensor]:
        lost = torch.sigmoid(gaps)
        return lost, lost * (1 - lost)

    return _mean_over_pairs(cost, scores, labels, mask)


@loss("lambda_loss")
def lambda_loss(scores: Tensor, labels: Tensor, mask: Tensor | None = None, metric: str = "ndcg") -> Tensor:
    """LambdaLoss: the weighted logistic loss of pairs, the sum over y_i > y_j of w_ij ln(1 + exp(S_j − S_i)).

    The weights are constant in the backward pass. With r the rank by score (ties in order of appearance),
    D(r) = 1 / log2(1 + r) and N the number of documents of the list:

    - ndcg[@K]: w = N |G_i − G_j| |D(|r_i − r_j|) − D(|r_i − r_j| + 1)| if r_i ≤ K or r_j ≤ K, else 0, with
      G = (2^y − 1) / Z and Z the ideal DCG[@K]
    - p@K: w = 1 if exactly one of the two is relevant and exactly one has a rank up to K, else 0
    - ap, rr[@K]: w = the change of the metric if the two documents swap ranks, as in LambdaMART

    Args:
        metric: p@K, rr@K, ndcg@K, rr, ndcg or ap.

    Reference:
        Wang, Li, Golbandi, Bendersky and Najork: The LambdaLoss Framework for Ranking Metric Optimization, CIKM 2018
        (NDCG-Loss2, as in TF-Ranking).

    >>> lambda_loss(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0, 1, 0]]))
    tensor([1.8009])
    """
    parsed = parse(metric)
    scores, labels, mask, degenerate = prepare_inputs(scores, labels, mask)
    with torch.no_grad():
        order = by_score(scores, mask)
        real = mask.gather(1, order)
        # Padding gets the lowest real score: no gap to it is above 0, so no exponential overflows.
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


def _mean_over_pairs(
    cost: Callable[[Tensor], tuple[Tensor, Tensor]], scores: Tensor, labels: Tensor, mask: Tensor | None
) -> Tensor:
    """The mean of `cost` over pairs: a function from S_j − S_i to the cost and its derivative, both 0 at −inf."""
    scores, labels, mask, degenerate = prepare_inputs(scores, labels, mask)
    with torch.no_grad():
        # Sorted by descending label, padding last, i is paired with every document after those with its label.
        better, order = labels.masked_fill(~mask, -torch.inf).contiguous().sort(dim=1, descending=True)
        ranked, worse = scores.gather(1, order), better.masked_fill(better < 0, torch.inf)
        firsts = labels.shape[1] - torch.searchsorted(better.flip(1), better)
        pairs = (mask.sum(dim=1, keepdim=True) - firsts).clamp_min(0).sum(dim=1)

        def block(lists: slice, rows: slice, columns: slice) -> tuple[Tensor, Tensor]:
            gaps = ranked[lists, None, columns] - ranked[lists, rows, None]
            no_pair = better[lists, rows, None] <= worse[lists, None, columns]
            return cost(gaps.masked_fill_(no_pair, -torch.inf))

        sums, slopes = pair_sums(ranked, firsts, block)
        pairs = pairs.clamp_min(1)
        gradient = torch.zeros_like(slopes).scatter_(1, order, slopes / pairs[:, None])
    return with_gradient(scores, sums / pairs, gradient).masked_fill(degenerate, 0)


def _matched_hinge(scores: Tensor, labels: Tensor, mask: Tensor | None, margin: float) -> Tensor:
    """(lists,): the mean hinge loss of the k-th relevant and the k-th non-relevant document, for all k with both."""
    scores, labels, mask, degenerate = prepare_inputs(scores, labels, mask)
    groups = (labels >= 1) & mask, (labels < 1) & mask
    counts = torch.minimum(*(group.sum(dim=1) for group in groups))
    # A stable sort moves the documents of each group to the front, in their order.
    i, j = (scores.gather(1, group.to(torch.uint8).argsort(dim=1, descending=True, stable=True)) for group in groups)
    unpaired = torch.arange(scores.shape[1], device=scores.device) >= counts[:, None]
    costs = torch.relu(margin - (i - j)).masked_fill(unpaired, 0)
    return (costs.sum(dim=1) / counts.clamp_min(1)).masked_fill(degenerate, 0)


def _weights(labels: Tensor, real: Tensor, metric: Metric) -> Callable[[slice, slice, slice], Tensor]:
    """The weights w of a block of positions, above 0 where the upper position has the higher label, else below.

    `labels` and `real`, True on real documents, are (lists, documents) by descending score; the caller applies the
    cut-off. Returns a function from the slices of lists, upper and lower positions to a new tensor of that shape.
    """
    relevant, ranks = (labels >= 1).to(labels.dtype), ranks_like(labels, labels.shape[1])
    if metric.name == "p":
        return lambda lists, upper, lower: relevant[lists, upper, None] - relevant[lists, None, lower]
    if metric.name == "ndcg":
        gains = gain(labels, highest(labels)) * (real.sum(dim=1) / ideal_dcg(labels, metric.cutoff))[:, None]
        drops = discount(ranks) - discount(ranks + 1)
        # A view: column c of row (documents - r) holds the factor for the distance of rank c + 1 from rank r.
        apart = torch.cat([torch.zeros_like(drops), drops[:-1]]).unfold(0, len(ranks), 1)
        row_of = len(ranks) - ranks.long()

        def gain_changes(lists: slice, upper: slice, lower: slice) -> Tensor:
            return (gains[lists, upper, None] - gains[lists, None, lower]).mul_(apart[row_of[upper], lower])

        return gain_changes

    if metric.name == "rr":
        return _rr_changes(relevant, ranks, metric.cutoff)
    at_upper, at_lower = _ap_changes(relevant, ranks)

    def precision_changes(lists: slice, upper: slice, lower: slice) -> Tensor:
        change = at_upper[lists, upper, None] + at_lower[lists, None, lower]
        return change.mul_(relevant[lists, upper, None] - relevant[lists, None, lower])

    return precision_changes


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


def _rr_changes(relevant: Tensor, ranks: Tensor, cutoff: int | None) -> Callable[[slice, slice, slice], Tensor]:
    """The weights of `_weights` for RR: the change of RR when the documents at two positions swap.

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
