"""What every loss does first: check the shapes, forget the padding, set aside the lists that cannot teach anything."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def mask_inputs(scores: Tensor, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, labels and mask as every formula here wants them, whatever the padding holds.

    Args:
        scores: (lists, documents), any floating type.
        labels: (lists, documents), graded relevance; a label below 0 counts as 0, as in trec_eval.
        mask: (lists, documents), True on real documents; None where all of them are.

    Returns:
        Scores in their own type but never below float32, labels in the same type, a boolean mask; 0 on padding.

    Raises:
        ValueError: the three do not have the same two-dimensional shape.
    """
    if scores.dim() != 2 or labels.shape != scores.shape or (mask is not None and mask.shape != scores.shape):
        got = [tuple(given.shape) for given in (scores, labels, mask) if given is not None]
        raise ValueError(f"scores, labels and mask must all be (lists, documents), got {', '.join(map(str, got))}")
    mask = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.bool()
    dtype = torch.promote_types(scores.dtype, torch.float32)
    # Filling, unlike multiplying by 0, also stops the NaN of a masked entry, forward and backward.
    scores = scores.masked_fill(~mask, 0).to(dtype)
    labels = labels.detach().masked_fill(~mask, 0).to(dtype).clamp_min(0)
    return scores, labels, mask


def prepare_inputs(scores: Tensor, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As `mask_inputs`, with the lists that have no relevant document, or fewer than two documents, made safe.

    Those lists become full lists of constant scores and labels 1, so that no formula meets an empty sum or a division
    by zero on their account; a loss ends by writing 0 over their values.

    Returns:
        Scores, labels and mask, and degenerate (lists,): True on those lists.
    """
    scores, labels, mask = mask_inputs(scores, labels, mask)
    if scores.shape[1] == 0:
        scores, labels, mask = F.pad(scores, (0, 1)), F.pad(labels, (0, 1)), F.pad(mask, (0, 1))
    degenerate = ~(labels >= 1).any(dim=1) | (mask.sum(dim=1) < 2)
    scores, labels = scores.masked_fill(degenerate[:, None], 0), labels.masked_fill(degenerate[:, None], 1)
    return scores, labels, mask | degenerate[:, None], degenerate


def mask_scores(scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Scores and mask for an operator, which has no labels: as `mask_inputs`."""
    scores, _, mask = mask_inputs(scores, torch.zeros_like(scores), mask)
    return scores, mask


def masked_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last dimension where `mask` is True and 0 elsewhere; all 0 where nothing is True."""
    lowest = torch.finfo(logits.dtype).min
    return logits.masked_fill(~mask, lowest).softmax(dim=-1).masked_fill(~mask, 0)


def masked_log_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """The logarithm of `masked_softmax`, with 0 on the masked entries, whose weight is 0 in every sum."""
    lowest = torch.finfo(logits.dtype).min
    return logits.masked_fill(~mask, lowest).log_softmax(dim=-1).masked_fill(~mask, 0)


def by_score(scores: Tensor, mask: Tensor) -> Tensor:
    """The order of the documents by descending score, ties in order of appearance, padding last: (lists, documents)."""
    # Two stable sorts, so that a real document with a score of -inf still stands before the padding.
    order = scores.detach().argsort(dim=1, descending=True, stable=True)
    return order.gather(1, mask.gather(1, order).to(torch.uint8).argsort(dim=1, descending=True, stable=True))


def tie_bounds(ranked: Tensor) -> tuple[Tensor, Tensor]:
    """For scores in order, where the first and the last document of equal score stand: each (lists, documents)."""
    index = torch.arange(ranked.shape[1], device=ranked.device).expand(ranked.shape)
    new = F.pad(ranked[:, 1:] != ranked[:, :-1], (1, 0), value=True)
    ends = F.pad(ranked[:, 1:] != ranked[:, :-1], (0, 1), value=True)
    first = index.masked_fill(~new, 0).cummax(dim=1).values
    last = index.masked_fill(~ends, ranked.shape[1]).flip(1).cummin(dim=1).values.flip(1)
    return first, last


def check_positive(name: str, value: float) -> None:
    """Raises ValueError where a hyperparameter is not above 0 and finite."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be above 0 and finite, got {value}")
