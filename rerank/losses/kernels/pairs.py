"""Sums over pairs of documents and their gradient, in blocks, whose memory does not grow with the lists."""

from collections.abc import Callable

import torch
from torch import Tensor

ROWS = 64
"""Documents of a list in the rows of a block."""

BLOCK = 2**18
"""Pairs in a block: as many lists as fit, but at least one."""


def pair_sums(
    scores: Tensor, firsts: Tensor, block: Callable[[slice, slice, slice], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """The sum of the costs of pairs (row, column); documents are in some order, and columns come after their rows.

    Args:
        scores: (lists, documents) in that order; only the shape and the type are used.
        firsts: (lists, rows), not decreasing along the rows: the first column with which a row is a pair. Documents
            beyond the rows are columns only.
        block: takes the slices of lists, rows and columns; returns the cost of each pair and its derivative with
            respect to S_column - S_row, both (lists, rows, columns) and 0 if there is no pair.

    Returns:
        The sums (lists,) and their gradient (lists, documents).
    """
    lists, documents = scores.shape
    values, gradient = torch.zeros_like(scores[:, 0]), torch.zeros_like(scores)
    starts = firsts[:, ::ROWS].T.tolist()
    for number, start_of_list in enumerate(starts):
        rows = slice(number * ROWS, min((number + 1) * ROWS, firsts.shape[1]))
        widest = documents - min(start_of_list, default=documents)
        size = max(1, BLOCK // max(1, ROWS * widest))
        for start in range(0, lists, size):
            part = slice(start, start + size)
            columns = slice(min(start_of_list[part]), documents)
            if columns.start < documents:
                costs, slopes = block(part, rows, columns)
                values[part] += costs.sum(dim=(1, 2))
                gradient[part, rows] -= slopes.sum(dim=2)
                gradient[part, columns] += slopes.sum(dim=1)
    return values, gradient
