"""Peak memory and time of a separate process, so that one measurement does not hide another's peak."""

import ctypes
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

from rerank.models.memory import is_out_of_memory
from rerank.utils.errors import UserError

Result = TypeVar("Result")

MMAP_THRESHOLD = -3
"""glibc's M_MMAP_THRESHOLD (malloc.h)."""


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


def expect_status() -> None:
    """Raises UserError where the system does not say how much memory a process takes."""
    if not Path("/proc/self/status").exists():
        raise UserError("/proc/self/status: there is none; peak memory is measured on Linux only")


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
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 2**20)
    with suppress(OSError):  # not Linux
        Path("/proc/self/oom_score_adj").write_text("1000")
    return function(*arguments)


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))  # its kB are KiB


def measured(code: str, arguments: Sequence[str], folder: Path, checkout: Path | None = None) -> dict[str, float]:
    """Runs Python code in `folder` in a new process: its "seconds" and "peak MB", its workers included (Linux).

    The first argument of the code is a file for the peak of its own process in KiB, which RUN writes for a command of
    rerank. `checkout` is a checkout of another version of rerank. Raises UserError if the code fails.
    """
    environment = os.environ | ({"PYTHONPATH": str(checkout.resolve())} if checkout else {})
    file, peak, start = folder / "peak", 0, time.perf_counter()
    words = [sys.executable, "-c", code, str(file), *arguments]
    with (folder / "errors").open("w+") as errors:
        with subprocess.Popen(words, env=environment, cwd=folder, stdout=errors, stderr=errors) as process:
            while process.poll() is None:
                peak = max(peak, _resident(process.pid))
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.1)
        seconds = time.perf_counter() - start
        errors.seek(0)
        if process.returncode:
            message = errors.read().strip()[-300:]
            raise UserError(f"rerank {' '.join(arguments)}: exit code {process.returncode}: {message}")
    return {"seconds": seconds, "peak MB": max(peak, int(file.read_text()) * 1024) / 1e6}


MEASURE = """
import sys
def measure(work):
    peak = sys.argv.pop(1)
    try:
        work(*sys.argv[1:])
    finally:
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))
        open(peak, "w").write(status["VmHWM"].split()[0])
"""
"""Defines the function that calls another one with the arguments of `measured`, and writes the peak."""

RUN = f"""{MEASURE}
from rerank.cli.main import main
measure(lambda *words: main(words))
"""


def _resident(process: int) -> int:
    """Resident bytes of a process and its descendants."""
    parents, pages = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            pages[int(folder.name)] = int((folder / "statm").read_text().split()[1])
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    family = {process}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(pages.get(member, 0) for member in family) * os.sysconf("SC_PAGE_SIZE")
