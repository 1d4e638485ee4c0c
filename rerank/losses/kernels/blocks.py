"""Losses in blocks of lists or of pairs: values and gradients in the forward pass, in the memory of one block.

Lists are independent and each has one value, so the derivative of all values has the shape (lists, documents). It is
computed with the values, block by block; the backward pass multiplies it by the incoming gradient. Padding costs
little: the lists of a block have similar lengths and are cut to the longest one. Degenerate lists are left out.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CPU_BLOCK = 2**21
"""Numbers in one intermediate result of a block on a CPU: 8 MB in float32. Half as many take 20 % more time."""

CPU_CALL = 2**18
"""Cost of one more block on a CPU, in numbers of an intermediate result: a split must save more padding than this."""

DEVICE_BLOCK = 2**24
"""CPU_BLOCK for other devices, on which starting an operation is expensive: 64 MB in float32."""

PAIR_ROWS = 64
"""Documents of a list in the rows of a block of pairs."""

PAIR_BLOCK = 2**18
"""Pairs in a block: as many lists as fit, but at least one."""

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def in_blocks(
    loss: Loss, scores: Tensor, labels: Tensor, mask: Tensor, degenerate: Tensor, entries: Callable[[int], int]
) -> Tensor:
    """The values of a loss, (lists,); only the graph of one block of lists is in memory at a time.

    `loss` maps scores, labels and mask, (lists, documents) each with the real documents first, to (lists,). Value and
    gradient are 0 where `degenerate`, (lists,), is True. `entries` maps the number of documents to the size of the
    largest intermediate result of one list. The gradient can be taken once.
    """
    needs_gradient = torch.is_grad_enabled() and scores.requires_grad
    # The index of each document when the real ones come first, in order of appearance.
    targets = torch.where(mask, mask.cumsum(dim=1), mask.sum(dim=1, keepdim=True) + (~mask).cumsum(dim=1)) - 1
    with torch.no_grad():
        packed, labels = (torch.empty_like(grid).scatter_(1, targets, grid) for grid in (scores, labels))
    lengths, order = mask.sum(dim=1).masked_fill(degenerate, 0).sort(descending=True, stable=True)
    values, gradient = scores.new_zeros(len(scores)), torch.zeros_like(scores)
    # Autocast would round the matrix products of the losses.
    with torch.autocast(scores.device.type, enabled=False):
        on_cpu = scores.device.type == "cpu"
        limit, call_overhead = (CPU_BLOCK, CPU_CALL) if on_cpu else (DEVICE_BLOCK, DEVICE_BLOCK)
        for block, width in _blocks(lengths.tolist(), entries, limit, call_overhead):
            rows = order[block]
            real = torch.arange(width, device=mask.device) < lengths[block, None]
            block_scores = packed[rows, :width].requires_grad_(needs_gradient)
            block_values = loss(block_scores, labels[rows, :width], real)
            if needs_gradient:
                gradient[rows, :width] = torch.autograd.grad(block_values.sum(), block_scores)[0]
            values[rows] = block_values.detach()
    return with_gradient(scores, values, gradient.gather(1, targets) if needs_gradient else None)


def _blocks(
    lengths: list[int], entries: Callable[[int], int], limit: int, call_overhead: int
) -> Iterator[tuple[slice, int]]:
    """Yields slices of lists and the length of the longest list in each; `lengths` is descending, 0 ends it.

    A block is filled up to `limit`, but ends earlier if that saves more than `call_overhead` numbers of padding.
    """
    numbers = [entries(length) for length in lengths]
    start, stop = 0, sum(length > 0 for length in lengths)
    while start < stop:
        end = _end_of_block(numbers, start, min(stop, start + max(1, limit // numbers[start])), call_overhead)
        yield slice(start, end), lengths[start]
        start = end


def _end_of_block(numbers: list[int], start: int, end: int, call_overhead: int) -> int:
    """The end of a block that begins at `start` and reaches at most to `end`, without padding that costs more."""
    while end - start > 1:
        saved = {cut: (end - cut) * (numbers[start] - numbers[cut]) for cut in range(start + 1, end)}
        best = max(saved, key=lambda cut: saved[cut])
        if saved[best] <= call_overhead:
            break
        end = best
    return end


def pair_sums(
    scores: Tensor, firsts: Tensor, block: Callable[[slice, slice, slice], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """The sums of the costs of pairs (row, column), (lists,), and their gradient, (lists, documents).

    Documents are in the order of `scores`, and columns come after their rows. `firsts`, (lists, rows), does not
    decrease along the rows; it is the first column that forms a pair with the row. Documents beyond the rows are only
    columns. `block` takes slices of lists, rows and columns; it returns the cost of each pair and its derivative with
    respect to S_column - S_row, both (lists, rows, columns) and 0 if there is no pair.
    """
    lists, documents = scores.shape
    values, gradient = torch.zeros_like(scores[:, 0]), torch.zeros_like(scores)
    starts = firsts[:, ::PAIR_ROWS].T.tolist()
    for number, start_of_list in enumerate(starts):
        rows = slice(number * PAIR_ROWS, min((number + 1) * PAIR_ROWS, firsts.shape[1]))
        widest = documents - min(start_of_list, default=documents)
        size = max(1, PAIR_BLOCK // max(1, PAIR_ROWS * widest))
        for start in range(0, lists, size):
            chosen = slice(start, start + size)
            columns = slice(min(start_of_list[chosen]), documents)
            if columns.start < documents:
                costs, slopes = block(chosen, rows, columns)
                values[chosen] += costs.sum(dim=(1, 2))
                gradient[chosen, rows] -= slopes.sum(dim=2)
                gradient[chosen, columns] += slopes.sum(dim=1)
    return values, gradient


def with_gradient(scores: Tensor, values: Tensor, gradient: Tensor | None) -> Tensor:
    """Makes the values, (lists,), a function of the scores, (lists, documents), with the given gradient.

    `gradient` is the derivative of each list's value, (lists, documents); None if it is not needed. It can be taken
    once.
    """
    if gradient is None:
        return values
    differentiable: Tensor = _WithGradient.apply(scores, values, gradient)
    return differentiable


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, values: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return values.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return grad[:, None] * gradient, None, None
