"""Isotonic regression of many lists at once: pools adjacent violators in rounds, without a loop over lists.

A partition of a row into runs of neighbours is stored as block numbers (lists, documents): 0 for the first run, 1 for
the second, and so on.
"""

from collections.abc import Callable

import torch
from torch import Tensor


@torch.no_grad()
def decreasing_blocks(level: Callable[[Tensor], Tensor], mask: Tensor) -> Tensor:
    """The runs of equal values in the non-increasing isotonic solution.

    Pooling in any order gives the solution, so each round pools every run of blocks whose levels do not decrease.
    Random lists take a few rounds; at most, it takes as many as there are documents. `level` maps block numbers to the
    optimal value of each entry's block; all are (lists, documents). Real entries come first; the others never join.
    """
    blocks = torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)
    while True:
        levels = level(blocks).masked_fill(~mask, -torch.inf)
        falls = levels[:, 1:] < levels[:, :-1]
        pooled = torch.cat([torch.zeros_like(blocks[:, :1]), falls.cumsum(dim=1)], dim=1)
        if torch.equal(pooled, blocks):
            return blocks
        blocks = pooled


def sum_by_block(values: Tensor, blocks: Tensor) -> Tensor:
    """Each entry's block sum: (lists, documents)."""
    return torch.zeros_like(values).scatter_add(1, blocks, values).gather(1, blocks)


def log_sum_by_block(values: Tensor, blocks: Tensor) -> Tensor:
    """The logarithm of each entry's block sum of exp(values): (lists, documents)."""
    lowest = torch.full_like(values, -torch.inf)
    highest = lowest.scatter_reduce(1, blocks, values.detach(), "amax").gather(1, blocks)
    return highest + sum_by_block(torch.exp(values - highest), blocks).log()
