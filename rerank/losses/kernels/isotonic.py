"""Isotonic optimisation in batch: pools adjacent violators of many lists at once, in rounds, without a loop over lists.

A partition of a row into runs of neighbours is written as block numbers (lists, documents), 0 at the start of a row and
growing by one from run to run.
"""

from collections.abc import Callable

import torch
from torch import Tensor


@torch.no_grad()
def decreasing_blocks(level: Callable[[Tensor], Tensor], mask: Tensor) -> Tensor:
    """The runs of equal value of the non-increasing isotonic solution.

    Any order of pooling gives the solution, so that each round pools every run of blocks whose levels do not decrease.
    Random lists take a few rounds; the most is the number of documents.

    Args:
        level: from block numbers to the best common value of each entry's block, (lists, documents).
        mask: (lists, documents), True on real entries, which come first; the others never join them.

    Returns:
        Block numbers (lists, documents).
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
