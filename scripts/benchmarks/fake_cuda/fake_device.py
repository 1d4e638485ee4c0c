"""Fake tensors on the fake device: a model's weights become fake, and autocast works as on a GPU."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

DEVICE = torch.device("cuda", 0)


class FakeAccelerator:
    """What training and scoring use of accelerate's Accelerator: one process, on the fake device, that writes nothing.

    `mixed_precision` is "bf16", "fp16" or "no".
    """

    device = DEVICE
    num_processes = 1
    process_index = 0
    is_main_process = False
    scaler = None

    def __init__(self, mixed_precision: str = "bf16") -> None:
        self.mixed_precision = mixed_precision

    def autocast(self) -> contextlib.AbstractContextManager[None]:
        """Autocast to `mixed_precision`."""
        types = {"bf16": torch.bfloat16, "fp16": torch.float16}
        return autocast(types[self.mixed_precision]) if self.mixed_precision in types else contextlib.nullcontext()

    def reduce(self, tensor: Any) -> Any:
        """The sum over the one process."""
        return tensor

    def log(self, values: dict[str, Any], step: int) -> None:
        """There is no tracker."""

    def wait_for_everyone(self) -> None:
        """There is nobody else."""


@contextlib.contextmanager
def autocast(dtype: torch.dtype) -> Iterator[None]:
    """As torch.autocast("cuda"), which switches itself off where torch cannot use CUDA."""
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", dtype)
    torch.set_autocast_cache_enabled(True)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])


def move_to_fake_device(model: nn.Module, fake: FakeTensorMode) -> None:
    """Replaces the parameters and buffers of a model on the CPU by fake ones on the device."""
    with fake:
        for module in model.modules():
            for name, value in module._parameters.items():
                if value is not None:
                    fake_value = torch.empty(value.shape, dtype=value.dtype, device=DEVICE)
                    module._parameters[name] = nn.Parameter(fake_value, requires_grad=value.requires_grad)
            for name, value in module._buffers.items():
                if value is not None:
                    module._buffers[name] = torch.empty(value.shape, dtype=value.dtype, device=DEVICE)
