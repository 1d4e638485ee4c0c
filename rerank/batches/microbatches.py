"""Which passages go through the encoder together: micro-batches filled to a budget of tokens, longest first."""

from collections.abc import Sequence

import torch
from torch import Tensor


def make_microbatches(lengths: Sequence[int], tokens: int, padded: bool = False) -> list[list[int]]:
    """The places of these lengths, longest first, in micro-batches of at most so many tokens.

    Where the encoder needs padding, it counts. A passage that is longer than the budget is alone.

    >>> micro_batches([5, 9, 30, 4], 10)
    [[2], [1], [0, 3]]
    """
    found: list[list[int]] = []
    filled = longest = 0
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        filled = longest * (len(found[-1]) + 1) if padded and found else filled + lengths[place]
        if not found or filled > tokens:
            found.append([])
            filled = longest = lengths[place]
        found[-1].append(place)
    return found


def restore_order(scores: Tensor, groups: list[list[int]]) -> Tensor:
    """Scores that were computed in groups of places, in the order of the places: (passages,)."""
    places = torch.tensor([place for group in groups for place in group], device=scores.device)
    return scores[places.argsort()]
