"""Pairwise losses: the mean of a function of S_i − S_j over the pairs of a list with y_i > y_j."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from rerank.losses.inputs import prepare_inputs
from rerank.losses.kernels.blocks import pair_sums, with_gradient
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
