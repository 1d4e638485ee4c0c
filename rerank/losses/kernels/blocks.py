"""Losses in blocks of lists: value and gradient in the forward pass, in the memory of one block.

Lists are independent and each has one value, so that the derivative of all values is a grid (lists, documents). It is
made with the values, block by block; the backward pass multiplies it by what comes from above. Padding costs nothing:
the lists of a block are of similar length and cut to the longest one, and lists that teach nothing are left out.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from rerank.losses.kernels.autograd import wants_gradient, with_gradient

CPU_BLOCK = 2**21
"""Numbers in one intermediate result of a block: 8 MB in float32. Half as many take a fifth longer, for the calls."""

CPU_CALL = 2**18
"""What another block costs on a CPU, in numbers of an intermediate result: it must save more padding than that."""

DEVICE_BLOCK = 2**24
"""The same where starting an operation is what costs: 64 MB in float32."""

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def in_blocks(
    loss: Loss, scores: Tensor, labels: Tensor, mask: Tensor, degenerate: Tensor, entries: Callable[[int], int]
) -> Tensor:
    """The values of a loss, with its graph alive for one block of lists at a time.

    Args:
        loss: from scores, labels and mask, each (lists, documents) with the real documents first, to (lists,).
        scores: (lists, documents), or anything that the loss is to be differentiated by.
        labels: (lists, documents).
        mask: (lists, documents), True on real documents.
        degenerate: (lists,), True where the value is 0 and so is the gradient.
        entries: from the number of documents to the numbers in the largest intermediate result of one list.

    Returns:
        (lists,). The gradient exists once.
    """
    wanted = wants_gradient(scores)
    places = _real_first(mask)
    with torch.no_grad():
        packed, labels = (torch.empty_like(grid).scatter_(1, places, grid) for grid in (scores, labels))
    lengths, order = mask.sum(dim=1).masked_fill(degenerate, 0).sort(descending=True, stable=True)
    values, gradient = scores.new_zeros(len(scores)), torch.zeros_like(scores)
    # Autocast would round the matrix products of the losses.
    with torch.autocast(scores.device.type, enabled=False):
        limit = block_size(scores.device)
        of_call = CPU_CALL if scores.device.type == "cpu" else limit
        for block, width in _blocks(lengths.tolist(), entries, limit, of_call):
            rows = order[block]
            real = torch.arange(width, device=mask.device) < lengths[block, None]
            part = packed[rows, :width].requires_grad_(wanted)
            found = loss(part, labels[rows, :width], real)
            if wanted:
                gradient[rows, :width] = torch.autograd.grad(found.sum(), part)[0]
            values[rows] = found.detach()
    return with_gradient(scores, values, gradient.gather(1, places) if wanted else None)


def block_size(device: torch.device) -> int:
    """How many numbers an intermediate result may have: CPU_BLOCK or DEVICE_BLOCK."""
    return CPU_BLOCK if device.type == "cpu" else DEVICE_BLOCK


def _real_first(mask: Tensor) -> Tensor:
    """Where each document goes so that the real ones come first, all in order of appearance: (lists, documents)."""
    padding = ~mask
    return torch.where(mask, mask.cumsum(dim=1) - 1, mask.sum(dim=1, keepdim=True) + padding.cumsum(dim=1) - 1)


def _blocks(lengths: list[int], entries: Callable[[int], int], limit: int, of_call: int) -> Iterator[tuple[slice, int]]:
    """Slices of lists, and the length of the longest list in each, for lengths in descending order; 0 ends them.

    A block is filled up to `limit`, but ends where that saves more than `of_call` numbers of padding.
    """
    numbers = [entries(length) for length in lengths]
    start, stop = 0, sum(length > 0 for length in lengths)

    def saved(end: int, of: int) -> int:
        return (of - end) * (numbers[start] - numbers[end])

    while start < stop:
        end = min(stop, start + max(1, limit // numbers[start]))
        while (best := max(range(start + 1, end), key=partial(saved, of=end), default=end)) < end:
            if saved(best, end) <= of_call:
                break
            end = best
        yield slice(start, end), lengths[start]
        start = end
