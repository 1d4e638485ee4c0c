"""The device and the processes of a run, and what they have used."""

import os
import platform
import re
import resource
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from rerank.models.memory import prefer_expandable_segments
from rerank.training.processes import group_settings
from rerank.utils.errors import UserError
from rerank.utils.progress import log

VECTOR_INSTRUCTIONS = ("amx", "asimd", "avx", "fma", "sve")
"""How the names begin that Linux gives to the instructions of which a matrix product is made."""


def open_accelerator(precision: str = "auto", device: str = "auto") -> Accelerator:
    """The processes and the device of this run: with "auto", a GPU if there is one, and bf16 if it supports it.

    Raises UserError for a device that this machine does not have.
    """
    prefer_expandable_segments()
    on_cpu = _select_device(device) == "cpu"
    mixed_precision = _mixed_precision(precision, on_cpu)
    accelerator = Accelerator(cpu=on_cpu, mixed_precision=mixed_precision, kwargs_handlers=[group_settings()])
    if accelerator.device.type == "cpu" and accelerator.num_processes == 1 and "MASTER_ADDR" in os.environ:
        log.info(
            "accelerate launches one process on CPU unless it has MPI, so this is the only one; "
            "for two on this machine: torchrun --nproc_per_node 2 -m rerank ..."
        )
    return accelerator


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
    models = _cpuinfo("model name")
    return models[0] if models else platform.processor() or platform.machine()


def arithmetic() -> dict[str, Any]:
    """What the last digits of a result depend on beside the device: torch's threads, its BLAS, the CPU's instructions.

    Sums are split among threads, and every library and set of instructions adds in an order of its own.
    """
    flags = next(iter(_cpuinfo("flags") or _cpuinfo("Features")), "").split()
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    libraries = re.findall(r"^Intel\(R\).*(?:Version|MKL-DNN) \S+", torch.__config__.parallel_info(), re.MULTILINE)
    return {
        "threads": torch.get_num_threads(),
        "blas": blas[1] if blas else None,
        "libraries": libraries,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cpu_features": sorted(flag for flag in flags if flag.startswith(VECTOR_INSTRUCTIONS)),
    }


def _cpuinfo(key: str) -> list[str]:
    """The values under a key of Linux's list of processors; none on other systems."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    return [value.strip() for name, _, value in (line.partition(":") for line in lines) if name.strip() == key]


def _select_device(device: str) -> str:
    """The type of the device; makes the GPU of that number the current one, which accelerate takes."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = device.partition(":")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise UserError("--training.device mps: PyTorch finds no Apple GPU here; expected auto or cpu")
    if kind == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not count:
            raise UserError(f"--training.device {device}: PyTorch finds no CUDA GPU here; expected auto or cpu")
        if number and int(number) >= count:
            valid = ", ".join(f"cuda:{n}" for n in range(count))
            raise UserError(f"--training.device {device}: no such GPU; expected {valid}")
        if number and "LOCAL_RANK" in os.environ:
            raise UserError(
                f"--training.device {device}: each of several processes has a GPU of its own; expected auto or cuda"
            )
        if number:
            torch.cuda.set_device(int(number))
    return kind


def _mixed_precision(precision: str, on_cpu: bool) -> str:
    if precision == "auto":
        return "bf16" if not on_cpu and torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "no"
    return {"float32": "no", "bf16": "bf16"}[precision]
