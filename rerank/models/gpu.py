"""The abilities of a device: whether torch runs on the GPU, in which precision, with which attention."""

import contextlib
import functools
import inspect
import os
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import torch

from rerank.config.settings import Precision
from rerank.utils.errors import UserError
from rerank.utils.texts import check_name

Autocast = Callable[[], AbstractContextManager[object]]
"""Makes the context that a forward pass runs in, such as `accelerator.autocast`."""

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The type of matrix products under each precision; float32 needs no autocast."""

FARTHEST = 0.05
"""Allowed difference of vectors in bf16 from float32, relative to the largest value; rounding gives about 0.01."""

SMALL = 2_000_000
"""A model with fewer parameters is SMALL: on a CPU, bf16 does not make it faster."""

FASTER = 1.5
"""The speed of bf16 products over float32 from which a CPU uses bf16; instructions for bf16 give 2 to 9."""

DEVICES = Path("/dev")
"""The folder with a file for each NVIDIA GPU, on Linux."""


def autocast_of(precision: str, device: torch.device) -> Autocast:
    """The autocast of a precision that `choose_precision` returned."""
    half = AUTOCAST.get(precision)
    return contextlib.nullcontext if half is None else functools.partial(torch.autocast, device.type, half)


@functools.cache
def bf16_gain() -> float:
    """The speed of a CPU's matrix products in bf16 over float32, measured once, in about 0.1 s.

    It counts the processor time of this thread, so other work on the machine does not change the result.
    """
    seconds = [_seconds_of_product(dtype) for dtype in (torch.float32, torch.bfloat16)]
    return seconds[0] / seconds[1]


def _seconds_of_product(dtype: torch.dtype) -> float:
    left, right = torch.ones(64, 512, dtype=dtype), torch.ones(512, 512, dtype=dtype)
    seconds: list[float] = []
    while not seconds or (len(seconds) < 20 and sum(seconds) < 0.05):  # the first one chooses kernels
        start = time.thread_time()
        torch.matmul(left, right)
        seconds.append(time.thread_time() - start)
    return min(seconds)


def expect_usable_gpu(index: int, said: str, remedy: str) -> None:
    """Raises UserError if torch cannot run on an NVIDIA GPU; `said` begins the message, and `remedy` ends it.

    An index that torch does not find is checked as the first GPU.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if reason := unusable_gpu(index if index < count else 0):
        raise UserError(f"{said}: PyTorch cannot run on the NVIDIA GPU of this machine: {reason.rstrip('.')}; {remedy}")


def unusable_gpu(index: int = 0) -> str:
    """Why torch cannot run on NVIDIA GPU number `index`; "" if it can, or if no GPU is visible."""
    if torch.cuda.is_available():
        return missing_architecture(index)
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1")
    if hidden or not any(DEVICES.glob("nvidia[0-9]*")):
        return ""
    if torch.version.cuda is None:
        return f"this PyTorch, {torch.__version__}, is built without CUDA; install a build with it (pytorch.org)"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return " ".join(str(error).split())
    return f"PyTorch {torch.__version__}, built for CUDA {torch.version.cuda}, does not find it"


def open_device(device: str | torch.device | None) -> torch.device:
    """A device that Python code names; None: a CUDA GPU if there is one, else the CPU.

    `rerank.training.device.select_device` opens the device of a run. Raises UserError for a device torch cannot use.
    """
    if not isinstance(device, str | torch.device | None):
        raise TypeError(f"device: expected a text or a torch.device, got {device!r:.80}")
    try:
        target = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError:
        raise UserError(
            f"device {device}: torch has no such device; expected such as cpu, cuda, cuda:1 or mps"
        ) from None
    if device is None or target.type == "cuda":
        expect_usable_gpu(target.index or 0, f"device {device}", 'device="cpu" takes the CPU')
    try:
        torch.empty(0, device=target)
    except (AssertionError, RuntimeError) as error:  # builds and drivers raise different types
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise UserError(f"device {device}: {reason}; expected a device of this machine, such as cpu") from None
    return target


def missing_architecture(index: int) -> str:
    """Why this build of torch has no code for GPU number `index`; "" if it has.

    Code for sm_XY runs on GPUs of capability X.Y and of later minor versions; code for sm_XYa only on X.Y; compute_XY
    is compiled for every later GPU when it is loaded.
    """
    built = torch.cuda.get_arch_list()
    if torch.version.hip or not built:
        return ""
    card = torch.cuda.get_device_capability(index)
    for kind, major, minor, suffix in re.findall(r"(sm|compute)_(\d+)(\d)([a-z]?)\b", " ".join(built)):
        code = int(major), int(minor)
        if card == code or (not suffix and card > code and (kind == "compute" or card[0] == code[0])):
            return ""
    return (
        f"it has compute capability {card[0]}.{card[1]}, and this PyTorch, {torch.__version__}, is built "
        f"for {', '.join(built)}; install a build for it (pytorch.org)"
    )


def choose_precision(precision: Precision, device: torch.device, flag: str = "--training.precision") -> str:
    """The precision of a run on a device: float32, bf16 or fp16.

    "auto" is bf16 on GPUs with bf16 in hardware and on CPUs where bf16 products are faster (see `bf16_gain`), fp16 on
    Volta and Turing, and otherwise float32. Several processes on CPUs use float32, as each would measure for itself.
    Raises ValueError for an unknown precision, and UserError for one that the device does not support.
    """
    if check_name(flag, precision) not in get_args(Precision):
        raise ValueError(f"{flag}: got {precision}, expected {', '.join(get_args(Precision))}")
    native = device.type != "cuda" or _is_ampere(device)
    if precision == "auto":
        if device.type == "cpu" and "LOCAL_RANK" not in os.environ:
            return "bf16" if bf16_gain() >= FASTER else "float32"
        if device.type != "cuda":
            return "float32"
        if native:
            return "bf16"
        is_volta = torch.cuda.get_device_capability(device) >= (7, 0)  # from which on float16 is faster than float32
        return "fp16" if is_volta else "float32"
    if precision == "bf16" and not native:
        raise UserError(
            f"{flag} bf16: {torch.cuda.get_device_name(device)} has no bf16; expected auto, float32 or fp16"
        )
    if precision == "fp16" and device.type == "cpu":
        raise UserError(f"{flag} fp16: is for GPUs, got the CPU; expected auto, float32 or bf16")
    return precision


def has_flash_attention(device: torch.device) -> bool:
    """Whether torch's FlashAttention for passages of different lengths runs on this device."""
    if device.type != "cuda" or not _has_varlen_attention():
        return False
    return _is_ampere(device)


def _is_ampere(device: torch.device) -> bool:
    """Whether this card, not the current one, has what Ampere brought: bf16, and FlashAttention; AMD's have both."""
    return bool(torch.version.hip) or torch.cuda.get_device_capability(device) >= (8, 0)


def _has_varlen_attention() -> bool:
    """Whether this torch's function for passages of any lengths takes a scale and a window, as from 2.11 on."""
    if not find_spec("torch.nn.attention.varlen"):
        return False
    from torch.nn.attention.varlen import varlen_attn

    return {"scale", "window_size"} <= inspect.signature(varlen_attn).parameters.keys()
