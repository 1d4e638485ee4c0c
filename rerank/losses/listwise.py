"""Listwise losses that are not built on an operator: ListNet, softmax, ListMLE and ListAP."""

import torch
from torch import Tensor

from rerank.losses.inputs import masked_log_softmax, masked_softmax, prepare_inputs
from rerank.losses.registry import loss


@loss("listnet")
def listnet(scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """The cross-entropy -sum_j softmax(y)_j log softmax(S)_j (Cao et al. 2007, top one).

    Args:
        scores: (lists, documents).
        labels: (lists, documents), graded.
        mask: (lists, documents), True on real documents; masked entries may hold anything.

    Returns:
        (lists,); at least the entropy of softmax(y); 0 where a list has no relevant document or just one document.
    """
    scores, labels, mask, degenerate = prepare_inputs(scores, labels, mask)
    cost = -masked_softmax(labels, mask) * masked_log_softmax(scores, mask)
    return cost.sum(dim=1).masked_fill(degenerate, 0)


@loss("softmax")
def softmax(scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """The cross-entropy of the labels over their sum and the scores' softmax (Bruch et al. 2019).

    It is -sum_j (y_j / sum_k y_k) log softmax(S)_j. Arguments and result as `listnet`.
    """
    scores, labels, mask, degenerate = prepare_inputs(scores, labels, mask)
    cost = -labels / labels.sum(dim=1, keepdim=True) * masked_log_softmax(scores, mask)
    return cost.sum(dim=1).masked_fill(degenerate, 0)


@loss("listmle")
def listmle(
    scores: Tensor, labels: Tensor, mask: Tensor | None = None, generator: torch.Generator | None = None
) -> Tensor:
    """The negative log-likelihood of the order by descending label (Xia et al. 2008).

    It is sum_i [logsumexp(S_(i), ..., S_(N)) - S_(i)], where (i) is the document at rank i of that order.

    Args:
        scores: (lists, documents).
        labels: (lists, documents), graded.
        mask: (lists, documents), True on real documents; masked entries may hold anything.
        generator: shuffles the documents of equal label; without it they stay in order of appearance.

    Returns:
        (lists,); 0 where a list has no relevant document or just one document.
    """
    scores, labels, mask, degenerate = prepare_inputs(scores, labels, mask)
    order = torch.arange(scores.shape[1], device=scores.device).expand(scores.shape)
    if generator is not None:
        keys = torch.rand(scores.shape, generator=generator, device=generator.device)
        order = keys.to(scores.device).argsort(dim=1)
    # Ascending, and padding first, so that a running logsumexp is the one over the documents that remain.
    keys = labels.masked_fill(~mask, -1).gather(1, order)
    order = order.flip(1).gather(1, keys.flip(1).argsort(dim=1, stable=True))
    ranked, real = scores.gather(1, order), mask.gather(1, order)
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
    """1 - the AP of scores counted in triangular bins (Revaud et al. 2019).

    A score outside [low, high] is clamped and has no gradient: scale scores into the range in the caller, with
    torch.tanh(scores) say, or choose `low` and `high` for the scores that the model gives.

    Args:
        scores: (lists, documents).
        labels: (lists, documents); 1 and above is relevant.
        mask: (lists, documents), True on real documents; masked entries may hold anything.
        bins: how many bin centres, evenly spaced from `high` down to `low`; 2 or more.
        low: the lowest bin centre.
        high: the highest bin centre.

    Returns:
        (lists,); 0 where a list has no relevant document or just one document.

    Raises:
        ValueError: `bins` is below 2 or the range is empty.
    """
    if bins < 2 or not low < high:
        raise ValueError(f"bins must be 2 or more and low below high, got {bins}, {low} and {high}")
    scores, labels, mask, degenerate = prepare_inputs(scores, labels, mask)
    step = (high - low) / (bins - 1)
    centres = high - step * torch.arange(bins, dtype=scores.dtype, device=scores.device)
    scores = scores.clamp(low, high)
    # A score has a share in the bin whose centre is nearest and in one of its neighbours, and nowhere else.
    nearest = ((high - scores.detach()) / step).round().long()[:, :, None]
    around = nearest + torch.arange(-1, 2, device=scores.device)
    exists = (around >= 0) & (around < bins) & mask[:, :, None]
    around = around.clamp(0, bins - 1)
    inside = torch.relu(1 - (scores[:, :, None] - centres[around]).abs() / step).masked_fill(~exists, 0)
    relevant = labels >= 1
    empty = scores.new_zeros(len(scores), bins)
    around = around.flatten(1)
    found = empty.scatter_add(1, around, (inside * relevant[:, :, None]).flatten(1))
    seen = empty.scatter_add(1, around, inside.flatten(1)).cumsum(dim=1)
    # Bins before the first document have no precision; they find nothing either.
    precision = found.cumsum(dim=1) / seen.masked_fill(seen == 0, 1)
    return (1 - (found * precision).sum(dim=1) / (relevant & mask).sum(dim=1)).masked_fill(degenerate, 0)
