"""Peak memory and time of a separate process, so that one measurement does not hide another's peak."""

import ctypes
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

from rerank.models.memory import is_out_of_memory
from rerank.utils.errors import UserError

Result = TypeVar("Result")
M_MMAP_THRESHOLD = -3  # in the C library's malloc.h


class Peak(NamedTuple):
    """Bytes in use before some work, and their maximum during it."""

    before: int
    most: int


def peak_memory(work: Callable[[], object], device: torch.device) -> Peak:
    """The memory of `work`: on a GPU that of its tensors, on a CPU that of the whole process (Linux only).

    Raises UserError on a CPU if the system is not Linux.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return Peak(before, torch.cuda.max_memory_allocated(device))
    try:
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = _status("VmRSS")
        work()
        return Peak(before, _status("VmHWM"))
    except OSError as error:
        raise UserError(
            f"{error.filename}: {error.strerror}; peak memory on a CPU is measured on Linux only"
        ) from error


def in_fresh_process(function: Callable[..., Result], *arguments: object) -> Result | None:
    """Returns the result of a module's `function` in a new process; None if it ran out of memory.

    If the machine runs out of memory, Linux kills that process before any other.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(_run_as_first_to_kill, function, torch.get_num_threads(), *arguments).result()
        except BrokenProcessPool:
            return None
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                return None
            raise


def _run_as_first_to_kill(function: Callable[..., Result], threads: int, *arguments: object) -> Result:
    torch.set_num_threads(threads)
    with suppress(OSError, AttributeError):  # not glibc
        # Freed memory is returned at once, so that the peak is of memory in use, not of the allocator's cache.
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 2**20)
    with suppress(OSError):  # not Linux
        Path("/proc/self/oom_score_adj").write_text("1000")
    return function(*arguments)


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))  # its kB are KiB
