"""Losses in blocks of lists: values and gradients in the forward pass, in the memory of one block.

Lists are independent and each has one value, so that the derivative of all values has the shape (lists, documents). It
is computed with the values, block by block; the backward pass multiplies it by the incoming gradient. Padding costs
little: the lists of a block have similar lengths and are cut to the longest one. Degenerate lists are left out.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from rerank.losses.kernels.autograd import wants_gradient, with_gradient

CPU_BLOCK = 2**21
"""Numbers in one intermediate result of a block: 8 MB in float32. With half as many, the calls take a fifth longer."""

CPU_CALL = 2**18
"""Overhead of another block on a CPU, in numbers of an intermediate result: it must save more padding than that."""

DEVICE_BLOCK = 2**24
"""As CPU_BLOCK, for devices on which starting an operation is expensive: 64 MB in float32."""

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def in_blocks(
    loss: Loss, scores: Tensor, labels: Tensor, mask: Tensor, degenerate: Tensor, entries: Callable[[int], int]
) -> Tensor:
    """The values of a loss; only the graph of one block of lists is in memory at a time.

    Args:
        loss: from scores, labels and mask, each (lists, documents) with the real documents first, to (lists,).
        scores: (lists, documents), or another tensor of this shape with respect to which the loss is differentiated.
        labels: (lists, documents).
        mask: (lists, documents), True on real documents.
        degenerate: (lists,), True if the value and the gradient are 0.
        entries: from the number of documents to the size of the largest intermediate result of one list.

    Returns:
        (lists,). The gradient can be taken once.
    """
    needs_gradient = wants_gradient(scores)
    targets = _real_first(mask)
    with torch.no_grad():
        packed, labels = (torch.empty_like(grid).scatter_(1, targets, grid) for grid in (scores, labels))
    lengths, order = mask.sum(dim=1).masked_fill(degenerate, 0).sort(descending=True, stable=True)
    values, gradient = scores.new_zeros(len(scores)), torch.zeros_like(scores)
    # Autocast would round the matrix products of the losses.
    with torch.autocast(scores.device.type, enabled=False):
        limit = block_size(scores.device)
        call_overhead = CPU_CALL if scores.device.type == "cpu" else limit
        for block, width in _blocks(lengths.tolist(), entries, limit, call_overhead):
            rows = order[block]
            real = torch.arange(width, device=mask.device) < lengths[block, None]
            part = packed[rows, :width].requires_grad_(needs_gradient)
            block_values = loss(part, labels[rows, :width], real)
            if needs_gradient:
                gradient[rows, :width] = torch.autograd.grad(block_values.sum(), part)[0]
            values[rows] = block_values.detach()
    return with_gradient(scores, values, gradient.gather(1, targets) if needs_gradient else None)


def block_size(device: torch.device) -> int:
    """The largest size of an intermediate result: CPU_BLOCK or DEVICE_BLOCK."""
    return CPU_BLOCK if device.type == "cpu" else DEVICE_BLOCK


def _real_first(mask: Tensor) -> Tensor:
    """The index of each document when the real ones come first, in order of appearance: (lists, documents)."""
    padding = ~mask
    return torch.where(mask, mask.cumsum(dim=1) - 1, mask.sum(dim=1, keepdim=True) + padding.cumsum(dim=1) - 1)


def _blocks(
    lengths: list[int], entries: Callable[[int], int], limit: int, call_overhead: int
) -> Iterator[tuple[slice, int]]:
    """Slices of lists, and the length of the longest list in each; `lengths` is in descending order, 0 ends it.

    A block is filled up to `limit`, but ends where that saves more than `call_overhead` numbers of padding.
    """
    numbers = [entries(length) for length in lengths]
    start, stop = 0, sum(length > 0 for length in lengths)

    def saved(end: int, stop: int) -> int:
        return (stop - end) * (numbers[start] - numbers[end])

    while start < stop:
        end = min(stop, start + max(1, limit // numbers[start]))
        while (best := max(range(start + 1, end), key=partial(saved, stop=end), default=end)) < end:
            if saved(best, end) <= call_overhead:
                break
            end = best
        yield slice(start, end), lengths[start]
        start = end
