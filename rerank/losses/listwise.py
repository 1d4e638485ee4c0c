"""Listwise losses without rank indicators or soft ranks: ListNet, softmax cross-entropy, ListMLE and ListAP."""

import torch
from torch import Tensor

from rerank.losses.inputs import masked_log_softmax, masked_softmax, prepare_inputs
from rerank.losses.registry import loss


@loss("listnet")
def listnet(scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """ListNet: the cross-entropy of two softmaxes, −Σ_j softmax(y)_j log softmax(S)_j (top-one probabilities).

    Its smallest value is the entropy of softmax(y), not 0.

    Reference:
        Cao, Qin, Liu, Tsai and Li: Learning to Rank: From Pairwise Approach to Listwise Approach, ICML 2007.

    >>> listnet(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0, 1, 0]]))
    tensor([1.4076])
    """
    scores, labels, mask, degenerate = prepare_inputs(scores, labels, mask)
    cost = -masked_softmax(labels, mask) * masked_log_softmax(scores, mask)
    return cost.sum(dim=1).masked_fill(degenerate, 0)


@loss("softmax")
def softmax(scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax cross-entropy of the scores and the labels divided by their sum.

    It is −Σ_j (y_j / Σ_k y_k) log softmax(S)_j.

    Reference:
        Bruch, Wang, Bendersky and Najork: An Analysis of the Softmax Cross Entropy Loss for Learning-to-Rank with
        Binary Relevance, ICTIR 2019.

    >>> softmax(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0, 1, 0]]))
    tensor([1.4076])
    """
    scores, labels, mask, degenerate = prepare_inputs(scores, labels, mask)
    cost = -labels / labels.sum(dim=1, keepdim=True) * masked_log_softmax(scores, mask)
    return cost.sum(dim=1).masked_fill(degenerate, 0)


@loss("listmle")
def listmle(scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """ListMLE: the negative log-likelihood of the order by label, Σ_i [logsumexp(S_(i), ..., S_(N)) − S_(i)].

    (i) is the document at rank i by descending label, with ties in order of appearance.

    Reference:
        Xia, Liu, Wang, Zhang and Li: Listwise Approach to Learning to Rank: Theory and Algorithm, ICML 2008.

    >>> listmle(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0, 1, 0]]))
    tensor([1.5345])
    """
    scores, labels, mask, degenerate = prepare_inputs(scores, labels, mask)
    # In ascending order with padding first, a running logsumexp covers exactly the remaining documents.
    order = labels.masked_fill(~mask, -1).flip(1).argsort(dim=1, stable=True)
    ranked, real = scores.flip(1).gather(1, order), mask.flip(1).gather(1, order)
    remaining = ranked.masked_fill(~real, torch.finfo(scores.dtype).min).logcumsumexp(dim=1)
    return (remaining - ranked).masked_fill(~real, 0).sum(dim=1).masked_fill(degenerate, 0)


@loss("listap")
def listap(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    bins: int = 25,
    low: float = -1.0,
    high: float = 1.0,
) -> Tensor:
    """ListAP: 1 − AP of the scores, counted in triangular bins.

    Scores outside [low, high] are clamped and have no gradient. Scale them into the range first, for example with
    torch.tanh(scores), or choose `low` and `high` to fit the model's scores.

    Args:
        bins: number of bins, whose centres are evenly spaced from `high` down to `low`; 2 or more.
        low: lowest bin centre.
        high: highest bin centre.

    Reference:
        Revaud, Almazán, Rezende and de Souza: Learning with Average Precision: Training Image Retrieval with a Listwise
        Loss, ICCV 2019.

    >>> listap(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0, 1, 0]]))
    tensor([0.5000])
    """
    if bins < 2 or not low < high:
        raise ValueError(f"bins must be 2 or more and low below high, got {bins}, {low} and {high}")
    scores, labels, mask, degenerate = prepare_inputs(scores, labels, mask)
    step = (high - low) / (bins - 1)
    centres = high - step * torch.arange(bins, dtype=scores.dtype, device=scores.device)
    scores = scores.clamp(low, high)
    # A score counts only in the bin with the nearest centre and in one of its neighbours.
    nearest = ((high - scores.detach()) / step).round().long()[:, :, None]
    neighbours = nearest + torch.arange(-1, 2, device=scores.device)
    exists = (neighbours >= 0) & (neighbours < bins)
    exists = (exists | scores.isnan()[:, :, None]) & mask[:, :, None]  # NaN has no bin, and must show in the loss
    neighbours = neighbours.clamp(0, bins - 1)
    shares = torch.relu(1 - (scores[:, :, None] - centres[neighbours]).abs() / step).masked_fill(~exists, 0)
    relevant = labels >= 1
    empty = scores.new_zeros(len(scores), bins)
    neighbours = neighbours.flatten(1)
    relevant_in_bin = empty.scatter_add(1, neighbours, (shares * relevant[:, :, None]).flatten(1))
    documents_so_far = empty.scatter_add(1, neighbours, shares.flatten(1)).cumsum(dim=1)
    # Bins before the first document have no precision, and add nothing to AP.
    precision = relevant_in_bin.cumsum(dim=1) / documents_so_far.masked_fill(documents_so_far == 0, 1)
    return (1 - (relevant_in_bin * precision).sum(dim=1) / (relevant & mask).sum(dim=1)).masked_fill(degenerate, 0)
