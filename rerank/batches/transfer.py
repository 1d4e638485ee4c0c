"""Copies to a GPU that the host does not wait for: from pinned memory, many tensors at once."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

ALIGNMENT = 16
"""The bytes at whose multiples a tensor begins in a buffer, so that kernels may read it in large words."""


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on another device."""
    if device.type != "cuda":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


def to_device_together(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Tensors of the CPU on another device, as parts of one buffer."""
    sizes = [-(-values.nbytes // ALIGNMENT) * ALIGNMENT for values in tensors]
    begins = [0, *accumulate(sizes)]
    buffer = torch.empty(begins[-1], dtype=torch.uint8, pin_memory=device.type == "cuda")
    for values, part in zip(tensors, _parts(buffer, begins, tensors), strict=True):
        part.copy_(values)
    return _parts(buffer.to(device, non_blocking=device.type == "cuda"), begins, tensors)


def _parts(buffer: Tensor, begins: Sequence[int], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Views of the buffer, each with the shape and the type of a tensor."""
    return [
        buffer[begin : begin + values.nbytes].view(values.dtype).view(values.shape)
        for begin, values in zip(begins, tensors, strict=False)
    ]
