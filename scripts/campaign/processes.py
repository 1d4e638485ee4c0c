"""Commands in processes of their own, started together, with signals and limits."""

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

RERANK = (sys.executable, "-m", "rerank")
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "PYTHONPATH": str(Path(__file__).parents[2]),
}
LIMIT = 600.0
"""Seconds; a command takes a few, or a minute on a busy machine, so one that takes longer hangs."""
GRACE = 15.0
"""Seconds that the processes that a command started may live longer than it."""
DROP_CAPABILITY = 24
"""prctl's option PR_CAPBSET_DROP (linux/prctl.h)."""
IGNORE_PERMISSIONS = (1, 2)
"""The capabilities CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH (linux/capability.h)."""


@dataclass(frozen=True)
class Command:
    """A command and what happens to it.

    words: of the command line of `program`.
    signals: pairs of the seconds after its start and the signal that it then gets.
    limit: the seconds after which it is killed, since it hangs.
    largest_file: the bytes that a file may have (RLIMIT_FSIZE); 0: any number.
    obeys_permissions: root may write only where permissions allow it, too (Linux).
    """

    words: tuple[str, ...]
    program: tuple[str, ...] = RERANK
    signals: tuple[tuple[float, int], ...] = ()
    limit: float = LIMIT
    largest_file: int = 0
    obeys_permissions: bool = False

    def __str__(self) -> str:
        what = "rerank" if self.program == RERANK else "python"
        limits = [f"signal {number} after {after:.3f} s" for after, number in self.signals]
        limits += [f"files of at most {self.largest_file} bytes"] * bool(self.largest_file)
        return " ".join([what, *self.words]) + (f"  [{', '.join(limits)}]" if limits else "")


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    code: its exit code, negative for a signal. hung: it took longer than its limit. orphans: processes that it started
    were alive seconds after its end.
    """

    code: int
    out: str
    err: str
    seconds: float
    hung: bool
    orphans: bool


def run_together(folder: Path, commands: Sequence[Command], environment: Mapping[str, str]) -> list[Ended]:
    """Runs commands at the same time in `folder`, and gives how each of them ended."""
    running = [_Running(folder, command, environment) for command in commands]
    with ThreadPoolExecutor(3 * len(running)) as pool:  # which waits for a command, and reads its two pipes
        ends = [pool.submit(one.wait, pool) for one in running]
        try:
            return [end.result() for end in ends]
        except BaseException:
            for one in running:
                one.process.kill()
            raise


class _Running:
    """A command that runs."""

    def __init__(self, folder: Path, command: Command, environment: Mapping[str, str]) -> None:
        self.command = command
        self.begin = time.monotonic()
        self.process = subprocess.Popen(
            [*command.program, *command.words],
            cwd=folder,
            env={**os.environ, **ENVIRONMENT, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C in the campaign's terminal is not for the command
            preexec_fn=self._limit,
        )

    def wait(self, pool: Executor) -> Ended:
        """Sends the signals, waits for the end, and ends what the command has left, which may have its pipes open."""
        with self.process:
            printed = [pool.submit(pipe.read) for pipe in (self.process.stdout, self.process.stderr)]
            for after, number in self.command.signals:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(max(0.0, self.begin + after - time.monotonic()))
                self.process.send_signal(number)
            hung = False
            try:
                self.process.wait(self.command.limit)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                hung = True
            seconds = time.monotonic() - self.begin
            orphans = _end_session(self.process.pid)
            out, err = (reading.result() for reading in printed)
            return Ended(self.process.returncode, out, err, seconds, hung, orphans)

    def _limit(self) -> None:
        """Runs in the new process, before the program."""
        if self.command.largest_file:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.command.largest_file,) * 2)
        if self.command.obeys_permissions:
            for capability in IGNORE_PERMISSIONS:
                ctypes.CDLL(None).prctl(DROP_CAPABILITY, capability, 0, 0, 0)


def _end_session(session: int) -> bool:
    """Waits for the processes that an ended command has left, and kills them after a while; whether it had to."""
    end = time.monotonic() + GRACE
    while left := list(_processes_of(session)):
        if time.monotonic() > end:
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signal.SIGKILL)
            return True
        time.sleep(0.05)
    return False


def _processes_of(session: int) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                yield process
