"""Peak memory, measured in a process of its own, so that one measurement does not hide another's peak."""

import multiprocessing
import resource
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

from rerank.errors import UserError

Result = TypeVar("Result")
STATUS = Path("/proc/self/status")


class Peak(NamedTuple):
    """Bytes that were in use before some work, and at most during it."""

    before: int
    most: int


def peak_memory(work: Callable[[], object], device: torch.device) -> Peak:
    """The memory of `work`: on a GPU what its tensors took there, else that of the whole process (Linux only).

    Raises UserError on a CPU whose system does not say.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return Peak(before, torch.cuda.max_memory_allocated(device))
    try:
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
        before = _kibibytes(STATUS, "VmRSS") * 1024
        work()
        return Peak(before, _kibibytes(STATUS, "VmHWM") * 1024)
    except OSError as error:
        raise UserError(
            f"{error.filename}: {error.strerror}; peak memory on a CPU is measured on Linux only"
        ) from error


def in_fresh_process(function: Callable[..., Result], *arguments: object) -> Result | None:
    """What `function` (of a module, not a local one) gives in a new process; None where memory did not suffice.

    The process may use nine tenths of the memory that is free, so that it fails before the machine does.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(_limited, function, torch.get_num_threads(), *arguments).result()
        except (MemoryError, torch.OutOfMemoryError, BrokenProcessPool):
            return None
        except RuntimeError as error:
            if "allocate memory" in str(error):  # what torch raises on a CPU
                return None
            raise


def _limited(function: Callable[..., Result], threads: int, *arguments: object) -> Result:
    torch.set_num_threads(threads)
    if not torch.cuda.is_available():  # CUDA reserves address space without end
        free = _kibibytes(Path("/proc/meminfo"), "MemAvailable") * 1024
        now = _kibibytes(STATUS, "VmSize") * 1024
        resource.setrlimit(resource.RLIMIT_AS, (now + free * 9 // 10,) * 2)
    return function(*arguments)


def _kibibytes(file: Path, key: str) -> int:
    lines = file.read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))
