"""The pairwise hinge loss by counting pairs: O(N log N) per list, times log2 of the number of distinct labels.

A pair (i, j) with y_i > y_j costs something where S_j > S_i - margin. In ascending order of the scores these j are a
suffix, so that the question is how many labels of a suffix are below y_i; for j, how many of a prefix are above y_j. A
wavelet matrix answers both: it takes the labels' ranks bit by bit from the highest, and at each bit maps a range of the
sequence to those of its documents that agree with y_i so far; where y_i goes on with 1, those that go on with 0 count.
The counts are the gradient, and the cost, which is linear where it is not 0, follows from them.
"""

import torch
from torch import Tensor


def hinge_sums(scores: Tensor, labels: Tensor, mask: Tensor, margin: float) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of max(0, margin - (S_i - S_j)) over the pairs y_i > y_j; sums and comparisons are in float64.

    Scores and labels are (lists, documents), 0 on padding. Returns the sum (lists,), its derivative (lists, documents),
    and the number of pairs (lists,).
    """
    classes, pairs = _classes(labels, mask)
    ranked, order = scores.masked_fill(~mask, torch.inf).contiguous().sort(dim=1)
    ranked, real = ranked.double(), mask.gather(1, order)
    below = ranked - margin
    suffixes = torch.searchsorted(ranked, below, right=True)
    prefixes = torch.searchsorted(below, ranked)
    lower, higher = _counts(classes.gather(1, order), suffixes, prefixes)
    slopes = (higher - lower).masked_fill_(~real, 0)

    # The slopes of a list sum to 0, so that any offset may be subtracted from the scores: it reduces rounding.
    offset = ranked.gather(1, mask.sum(dim=1, keepdim=True) // 2).nan_to_num(0, 0, 0)
    # An infinite score that costs nothing adds 0, not NaN; a NaN still adds NaN.
    costs = torch.where((slopes == 0) & ~ranked.isnan(), 0, (ranked - offset) * slopes)
    values = costs.masked_fill_(~real, 0).sum(dim=1) + margin * lower.masked_fill_(~real, 0).sum(dim=1).double()
    return values, torch.zeros_like(ranked).scatter_(1, order, slopes.double()), pairs


def _classes(labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The rank of each label among the list's distinct ones, padding above all, and the number of pairs (lists,)."""
    ascending, order = labels.masked_fill(~mask, torch.inf).sort(dim=1)
    places = torch.arange(labels.shape[1], device=labels.device)
    new = torch.ones_like(mask)
    torch.ne(ascending[:, 1:], ascending[:, :-1], out=new[:, 1:])
    lower = torch.where(new, places, 0).cummax(dim=1).values
    pairs = lower.masked_fill_(places >= mask.sum(dim=1, keepdim=True), 0).sum(dim=1)
    return torch.empty_like(order).scatter_(1, order, new.cumsum(dim=1) - 1), pairs


def _counts(classes: Tensor, suffixes: Tensor, prefixes: Tensor) -> tuple[Tensor, Tensor]:
    """How many lower classes are from `suffixes` on, and how many higher ones before `prefixes`: (lists, documents)."""
    lists, documents = classes.shape
    places = torch.arange(documents, device=classes.device)
    bounds = torch.stack([suffixes, torch.full_like(classes, documents), torch.zeros_like(classes), prefixes], dim=1)
    lower, higher = torch.zeros_like(classes), torch.zeros_like(classes)
    zeros = classes.new_zeros(lists, documents + 1)
    sequence = classes
    for bit in reversed(range(int(classes.max()).bit_length() if classes.numel() else 0)):
        one = (sequence >> bit & 1).bool()
        torch.cumsum(~one, dim=1, out=zeros[:, 1:])
        total, ahead = zeros[:, -1:], zeros[:, :-1]
        mapped = zeros.gather(1, bounds.flatten(1)).view_as(bounds)
        inside, zeros_inside = bounds[:, 1::2] - bounds[:, ::2], mapped[:, 1::2] - mapped[:, ::2]
        goes_on = (classes >> bit & 1).bool()
        lower += zeros_inside[:, 0] * goes_on
        higher += (inside - zeros_inside)[:, 1] * ~goes_on
        bounds = torch.where(goes_on[:, None], total[:, None] + bounds - mapped, mapped)
        sequence = torch.empty_like(sequence).scatter_(1, torch.where(one, total + places - ahead, ahead), sequence)
    return lower, higher
