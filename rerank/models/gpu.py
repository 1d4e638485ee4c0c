"""What the device of this machine can do: whether torch finds its GPU, in which precision, with which attention."""

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import torch

from rerank.utils.errors import UserError

Autocast = Callable[[], AbstractContextManager[Any]]
"""Makes the context that a forward pass runs in, such as `accelerator.autocast`."""

Precision = Literal["auto", "float32", "bf16", "fp16"]

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The type of matrix products under each precision; float32 needs no autocast."""

FAST_HALF = (7, 0)
"""The compute capability from which float16 is faster than float32 (Volta)."""

SMALL = 2_000_000
"""Parameters of a model that bf16 and int8 make no faster on a CPU."""

FLASH_ATTENTION = (8, 0)
"""The compute capability from which torch's FlashAttention runs (Ampere)."""


DEVICES = Path("/dev")
"""Where Linux has a file for each NVIDIA GPU."""


def unusable_gpu() -> str:
    """Why torch does not find this machine's NVIDIA GPU; "" if it does, and if there is none.

    A GPU that CUDA_VISIBLE_DEVICES hides is none.
    """
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1")
    if torch.cuda.is_available() or hidden or not any(DEVICES.glob("nvidia[0-9]*")):
        return ""
    if torch.version.cuda is None:
        return f"this PyTorch, {torch.__version__}, is built without CUDA; install a build with it (pytorch.org)"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return " ".join(str(error).split())
    return f"PyTorch {torch.__version__}, built for CUDA {torch.version.cuda}, does not find it"


def usable_device(device: str | torch.device | None) -> torch.device:
    """The device; for None a CUDA GPU if there is one, and otherwise the CPU.

    Raises UserError if torch does not find the NVIDIA GPU of this machine.
    """
    target = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if (device is None or target.type == "cuda") and (reason := unusable_gpu()):
        raise UserError(
            f"device {device}: PyTorch cannot run on the NVIDIA GPU of this machine: {reason.rstrip('.')}; "
            'device="cpu" takes the CPU'
        )
    return target


def choose_precision(precision: Precision, device: torch.device, flag: str = "--training.precision") -> str:
    """The precision of a run on a device: float32, bf16 or fp16.

    "auto" is bf16 on GPUs and CPUs that have it in hardware, fp16 on Volta and Turing, and otherwise float32: older
    GPUs compute float16 slowly, and nobody has measured Apple's. Raises UserError for a precision that the device does
    not have.
    """
    native = device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
    if precision == "auto":
        if device.type == "cpu":
            return "bf16" if multiplies_bf16() else "float32"
        if device.type != "cuda":
            return "float32"
        return "bf16" if native else "fp16" if torch.cuda.get_device_capability(device) >= FAST_HALF else "float32"
    if precision == "bf16" and not native:
        raise UserError(
            f"{flag} bf16: {torch.cuda.get_device_name(device)} has no bf16; expected auto, float32 or fp16"
        )
    if precision == "fp16" and device.type == "cpu":
        raise UserError(f"{flag} fp16: is for GPUs, got the CPU; expected auto, float32 or bf16")
    return precision


def multiplies_bf16() -> bool:
    """Whether the CPU has instructions for products in bf16, which are 2 to 9 times as fast as float32's."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def has_flash_attention(device: torch.device) -> bool:
    """Whether torch's FlashAttention, which takes passages of any lengths in one call, runs on this device."""
    if device.type != "cuda":
        return False
    return bool(torch.version.hip) or torch.cuda.get_device_capability(device) >= FLASH_ATTENTION


@contextlib.contextmanager
def full_float32() -> Iterator[None]:
    """Float32 products are computed in float32, not in TF32, whatever the run or a caller has chosen."""
    backends = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = [backend.fp32_precision for backend in backends]
    for backend in backends:
        backend.fp32_precision = "ieee"
    try:
        yield
    finally:
        for backend, precision in zip(backends, before, strict=True):
            backend.fp32_precision = precision
