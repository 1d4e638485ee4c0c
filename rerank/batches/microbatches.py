"""Groups passages into micro-batches of at most N tokens, the longest passages first."""

from collections.abc import Sequence

import torch
from torch import Tensor


def make_microbatches(lengths: Sequence[int], tokens: int, padded: bool = False) -> list[list[int]]:
    """The indices of these lengths, longest first, in micro-batches of at most `tokens` tokens.

    `padded` counts padding too, for encoders that need it. A passage longer than `tokens` is a micro-batch of its own.

    >>> make_microbatches([5, 9, 30, 4], 10)
    [[2], [1], [0, 3]]
    """
    groups: list[list[int]] = []
    filled = longest = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        filled = longest * (len(groups[-1]) + 1) if padded and groups else filled + lengths[index]
        if not groups or filled > tokens:
            groups.append([])
            filled = longest = lengths[index]
        groups[-1].append(index)
    return groups


def restore_order(scores: Tensor, groups: list[list[int]]) -> Tensor:
    """Scores that were computed in groups of indices, in the order of the indices: (passages,)."""
    indices = torch.tensor([index for group in groups for index in group], device=scores.device)
    return scores[indices.argsort()]
