"""The device and the processes of a run, and what they have used."""

import contextlib
import os
import platform
import re
import resource
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import InitProcessGroupKwargs

from rerank.config import Config, TrainingSettings
from rerank.models.gpu import (
    AUTOCAST,
    Precision,
    autocast_of,
    bf16_gain,
    choose_precision,
    has_flash_attention,
    unusable_gpu,
)
from rerank.models.reranker import Reranker
from rerank.utils.errors import UserError
from rerank.utils.locks import locked
from rerank.utils.parallel import GPUS

LONGEST_WAIT = timedelta(days=1)
"""How long a process waits for the others: the main process alone downloads, indexes, retrieves and tokenises."""
CUBLAS_SETTINGS = "CUBLAS_WORKSPACE_CONFIG"
PROCESSOR = Path("/proc/cpuinfo")


def open_accelerator(settings: TrainingSettings) -> Accelerator:
    """The processes and the device of a run, as its settings choose them.

    In fp16 the accelerator has a gradient scaler. Deterministic algorithms, on CUDA those of attention kernels and of
    cuBLAS too, are used until the end of `kept_torch_settings`; an operation that has none raises RuntimeError. Raises
    UserError for a device that this machine does not have or torch cannot run on, and for one without the precision.
    """
    selected = select_device(settings.device)
    chosen = choose_precision(settings.precision, selected)
    if settings.deterministic:
        os.environ.setdefault(CUBLAS_SETTINGS, ":4096:8")  # read when CUDA is first used
        torch.use_deterministic_algorithms(True)
    if selected.type == "cuda":
        torch.backends.cuda.matmul.fp32_precision = "tf32" if settings.tf32 else "ieee"
    on_cpu = selected.type == "cpu"
    accelerator = Accelerator(
        cpu=on_cpu,
        mixed_precision="no" if on_cpu or chosen == "float32" else chosen,
        kwargs_handlers=[InitProcessGroupKwargs(timeout=LONGEST_WAIT)],
    )
    if on_cpu and chosen in AUTOCAST:  # accelerate would give all accelerators of the process the precision
        accelerator.autocast = autocast_of(chosen, selected)
    return accelerator


@contextlib.contextmanager
def kept_torch_settings() -> Iterator[None]:
    """After the block torch's algorithms, its products and the setting of cuBLAS are as they were before."""
    algorithms = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    products = torch.backends.cuda.matmul.fp32_precision
    cublas = os.environ.get(CUBLAS_SETTINGS)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(algorithms[0], warn_only=algorithms[1])
        torch.backends.cuda.matmul.fp32_precision = products
        os.environ.pop(CUBLAS_SETTINGS, None)
        if cublas is not None:
            os.environ[CUBLAS_SETTINGS] = cublas


def open_reranker(config: Config, checkpoint: str) -> Reranker:
    """The model of a checkpoint or of the hub, on the device of the settings; raises as `Reranker.load` does."""
    return Reranker.load(
        checkpoint,
        device=select_device(config.training.device),
        precision=config.training.precision,
        max_tokens_per_forward=config.training.max_tokens_per_forward,
        pooling=config.encoder.pooling,
        max_doc_tokens=config.encoder.max_doc_tokens,
        template=config.encoder.template,
    )


def peak_memory(device: torch.device) -> int:
    """The peak memory of this process in bytes: of its tensors on a GPU, of the whole process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS, in KiB elsewhere
    return peak if sys.platform == "darwin" else peak * 1024


def device_name(device: torch.device) -> str:
    """The name of the processor or the GPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    facts = PROCESSOR.read_text(encoding="utf-8") if PROCESSOR.is_file() else ""
    found = re.search(r"^model name\s*: (.*)", facts, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def device_facts(device: torch.device) -> dict[str, Any]:
    """The device, and what the last digits of a result depend on beside it, for a manifest.

    Sums are split among threads, and every library and set of instructions adds in an order of its own.
    """
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    arithmetic = {
        "threads": torch.get_num_threads(),
        "blas": blas[1] if blas else None,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
    return {"device": str(device), "device_name": device_name(device), "arithmetic": arithmetic}


def precision_of(accelerator: Accelerator) -> str:
    """The precision of matrix products in this run: float32, bf16 or fp16."""
    kind = accelerator.device.type
    with accelerator.autocast():
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    return next((name for name, half in AUTOCAST.items() if half == dtype), "float32")


def precision_facts(accelerator: Accelerator, model: Any) -> dict[str, Any]:
    """The precision of a model in this run, or a graph's own, and whether float32 products are TF32; for a manifest."""
    own = "float32" if getattr(model, "in_float32", False) else getattr(model, "precision", "")
    return {"precision": own or precision_of(accelerator), "tf32": uses_tf32(accelerator)}


def uses_tf32(accelerator: Accelerator) -> bool:
    """Whether float32 products round their factors to TF32: on CUDA only, unless `--training.tf32` forbids it."""
    return accelerator.device.type == "cuda" and bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


def select_device(device: str) -> torch.device:
    """The device of that name, for auto a CUDA GPU or else the CPU; a GPU with a number becomes the current one.

    Raises UserError for a device that this machine does not have, and for an NVIDIA GPU that torch cannot run on.
    """
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return torch.device("cpu")
    if kind == "mps":
        if not torch.backends.mps.is_available():
            raise UserError("--training.device mps: PyTorch finds no Apple GPU here; expected auto or cpu")
        return torch.device("mps")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if number and int(number) >= count > 0:
        valid = ", ".join(f"cuda:{n}" for n in range(count))
        raise UserError(f"--training.device {device}: no such GPU; expected {valid}")
    if number and "LOCAL_RANK" in os.environ:
        raise UserError(
            f"--training.device {device}: each of several processes has a GPU of its own; expected auto or cuda"
        )
    index = int(number or os.environ.get("LOCAL_RANK", "0"))
    if reason := unusable_gpu(index if index < count else 0):
        raise UserError(
            f"--training.device {device}: PyTorch cannot run on the NVIDIA GPU of this machine: "
            f"{reason.rstrip('.')}; --device cpu takes the CPU"
        )
    if not count:
        if kind == "cuda":
            raise UserError(f"--training.device {device}: PyTorch finds no CUDA GPU here; expected auto or cpu")
        return torch.device("cpu")
    if number:
        torch.cuda.set_device(index)
    return torch.device("cuda", index if index < count else 0)


def visible_gpus() -> list[str]:
    """The CUDA GPUs that this process sees, as CUDA_VISIBLE_DEVICES names them."""
    if not torch.cuda.is_available():
        return []
    count = torch.cuda.device_count()
    names = [name.strip() for name in os.environ.get(GPUS, "").split(",")]
    return names[:count] if len(names) >= count and all(names[:count]) else [str(number) for number in range(count)]


def describe_device(device: str, precision: Precision) -> str:
    """One line about the device of a run and its precision; raises UserError as `open_accelerator` does."""
    selected = select_device(device)
    chosen = choose_precision(precision, selected)
    if selected.type == "cpu":
        gain = f"products in bf16 are {bf16_gain():.1f} times as fast as in float32"
        return f"CPU, {torch.get_num_threads()} threads, {chosen}: {gain}; training bert-base needs a GPU"
    if selected.type == "mps":
        return f"Apple GPU, {chosen}"
    major, minor = torch.cuda.get_device_capability(selected)
    attention = "FlashAttention" if has_flash_attention(selected) and chosen != "float32" else "SDPA"
    return (
        f"{torch.cuda.device_count()} × {torch.cuda.get_device_name(selected)}, compute capability {major}.{minor}, "
        f"{chosen}, {attention}"
    )


def expect_one_process(accelerator: Accelerator, what: str, instead: str = "") -> None:
    """Raises UserError, which begins with `what`, if this run has several processes; `instead` ends the line."""
    if accelerator.num_processes > 1:
        raise UserError(f"{what} starts its own processes: run it without accelerate or torchrun{instead}")


@contextlib.contextmanager
def exclusive(accelerator: Accelerator, folder: Path, what: str) -> Iterator[None]:
    """The lock `what` on `folder` (see `locked`), held by all processes of this run together."""
    with locked(folder, what) if accelerator.is_main_process else contextlib.nullcontext():
        accelerator.wait_for_everyone()
        yield


def end_processes() -> None:
    """Ends the group of processes when all have come here; does nothing where there is one process."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        state = PartialState()
        state.wait_for_everyone()
        state.destroy_process_group()
