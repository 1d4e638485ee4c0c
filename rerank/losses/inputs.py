"""Input checks and masking shared by all losses."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def mask_inputs(scores: Tensor, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Checks the shapes of scores, labels and mask, and sets the padding to 0, whatever it holds.

    Without a mask all documents are real. Returns scores and labels in the scores' type, at least float32, and a
    boolean mask. Raises TypeError for what is no tensor, and ValueError for other shapes than one in two dimensions.
    """
    for what, given in (("scores", scores), ("labels", labels), ("mask", mask)):
        if not isinstance(given, Tensor) and (what != "mask" or given is not None):
            raise TypeError(f"{what}: expected a tensor (lists, documents), got {type(given).__name__}")
    if scores.dim() != 2 or labels.shape != scores.shape or (mask is not None and mask.shape != scores.shape):
        shapes = [tuple(tensor.shape) for tensor in (scores, labels, mask) if tensor is not None]
        raise ValueError(f"scores, labels and mask must all be (lists, documents), got {', '.join(map(str, shapes))}")
    mask = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.bool()
    dtype = torch.promote_types(scores.dtype, torch.float32)
    # Unlike multiplying by 0, filling also removes the NaN of a masked entry, forward and backward.
    scores = scores.masked_fill(~mask, 0).to(dtype)
    labels = labels.detach().masked_fill(~mask, 0).to(dtype)
    return scores, labels, mask


def prepare_inputs(scores: Tensor, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Does what `mask_inputs` does, sets labels below 0 to 0, as trec_eval does, and makes degenerate lists safe.

    A list is degenerate if it has no relevant document or fewer than two documents. Degenerate lists become full lists
    with scores 0 and labels 1, so no formula has an empty sum or divides by zero. A loss replaces their values by 0 at
    the end. Returns scores, labels, mask, and (lists,), True for the degenerate lists.

    >>> prepare_inputs(torch.tensor([[2.0, torch.nan, 1.0]]), torch.tensor([[-1, 3, 1]]), torch.tensor([[1, 0, 1]]))
    (tensor([[2., 0., 1.]]), tensor([[0., 0., 1.]]), tensor([[ True, False,  True]]), tensor([False]))
    """
    scores, labels, mask = mask_inputs(scores, labels, mask)
    labels = labels.clamp_min(0)
    if scores.shape[1] == 0:
        scores, labels, mask = F.pad(scores, (0, 1)), F.pad(labels, (0, 1)), F.pad(mask, (0, 1))
    degenerate = ~(labels >= 1).any(dim=1) | (mask.sum(dim=1) < 2)
    scores, labels = scores.masked_fill(degenerate[:, None], 0), labels.masked_fill(degenerate[:, None], 1)
    return scores, labels, mask | degenerate[:, None], degenerate


def mask_scores(scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Does what `mask_inputs` does, for operators, which take no labels."""
    scores, _, mask = mask_inputs(scores, scores, mask)
    return scores, mask


def masked_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the entries of the last dimension where `mask` is True; 0 elsewhere."""
    lowest = torch.finfo(logits.dtype).min
    return logits.masked_fill(~mask, lowest).softmax(dim=-1).masked_fill(~mask, 0)


def masked_log_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """The logarithm of `masked_softmax`; 0 on masked entries, as their weight is 0 in every sum."""
    lowest = torch.finfo(logits.dtype).min
    return logits.masked_fill(~mask, lowest).log_softmax(dim=-1).masked_fill(~mask, 0)


def by_score(scores: Tensor, mask: Tensor) -> Tensor:
    """The order of the documents by descending score, ties in order of appearance, padding last: (lists, documents)."""
    # Two stable sorts, so that a real document with the score -inf still comes before the padding.
    order = scores.detach().argsort(dim=1, descending=True, stable=True)
    return order.gather(1, mask.gather(1, order).to(torch.uint8).argsort(dim=1, descending=True, stable=True))


def tie_bounds(ranked: Tensor) -> tuple[Tensor, Tensor]:
    """For sorted scores: the indices of the first and the last document of each tie, both (lists, documents)."""
    index = torch.arange(ranked.shape[1], device=ranked.device).expand(ranked.shape)
    new = F.pad(ranked[:, 1:] != ranked[:, :-1], (1, 0), value=True)
    ends = F.pad(ranked[:, 1:] != ranked[:, :-1], (0, 1), value=True)
    first = index.masked_fill(~new, 0).cummax(dim=1).values
    last = index.masked_fill(~ends, ranked.shape[1]).flip(1).cummin(dim=1).values.flip(1)
    return first, last


def check_positive(name: str, value: float) -> None:
    """Raises ValueError if a hyperparameter is not above 0 and finite."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be above 0 and finite, got {value}")
