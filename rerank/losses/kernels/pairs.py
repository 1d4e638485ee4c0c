"""Sums over pairs of documents, with their gradient, in blocks: memory for one block, however long the lists are."""

from collections.abc import Callable

import torch
from torch import Tensor

ROWS = 64
"""How many documents of a list make the rows of a block."""

BLOCK = 2**18
"""How many pairs a block has: as many lists at once as fit, but at least one."""


def pair_sums(
    scores: Tensor, firsts: Tensor, block: Callable[[slice, slice, slice], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """The sum of the costs of pairs (row, column), with the columns right of the rows in some order of each list.

    Args:
        scores: (lists, documents) in that order; only the shape and the type are used.
        firsts: (lists, rows), not decreasing along the rows: the first column with which a row is a pair. Documents
            beyond the rows are columns only.
        block: takes the slices of lists, rows and columns and gives the cost of each pair and its derivative in the
            score of the column less that of the row, both (lists, rows, columns) and 0 where there is no pair.

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
            some = slice(start, start + size)
            columns = slice(min(start_of_list[some]), documents)
            if columns.start < documents:
                costs, slopes = block(some, rows, columns)
                values[some] += costs.sum(dim=(1, 2))
                gradient[some, rows] -= slopes.sum(dim=2)
                gradient[some, columns] += slopes.sum(dim=1)
    return values, gradient
