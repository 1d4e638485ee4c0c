"""Processes that take jobs one after the other: a job that fails, or a worker that dies, costs that job alone."""

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from multiprocessing import connection, get_context, parent_process
from multiprocessing.context import SpawnProcess
from typing import NamedTuple, TypeVar

from rerank.errors import UserError

Job = TypeVar("Job")
SECONDS_TO_END = 20.0
"""What an interrupted worker has to leave everything whole before it is killed."""


class Worker(NamedTuple):
    """A process and our end of its pipe."""

    process: SpawnProcess
    pipe: "connection.Connection[object, object]"


def work(
    function: Callable[[Job], None], jobs: Sequence[Job], workers: int, threads: int
) -> Generator[tuple[Job, str], None, None]:
    """Yields each job, when it has ended, with what went wrong, which is "" where nothing did.

    `function` is called in `workers` spawned processes, which live on, silent, with `threads` torch threads each. An
    interrupt here, or the end of the iteration (take it under contextlib.closing), interrupts all of them, once, and
    waits for them.
    """
    waiting = deque(jobs)
    idle: list[Worker] = []
    busy: dict[Worker, Job] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                worker = idle.pop() if idle else _start(function, threads)
                busy[worker] = waiting.popleft()
                with contextlib.suppress(OSError):  # where it has died, reading will tell
                    worker.pipe.send(busy[worker])
            ready = connection.wait([worker.pipe for worker in busy])
            for worker in [worker for worker in busy if worker.pipe in ready]:
                job = busy.pop(worker)
                try:
                    error = str(worker.pipe.recv())
                    idle.append(worker)
                except (EOFError, OSError):
                    worker.process.join()
                    error = f"its process ended with exit code {worker.process.exitcode} (-9: killed, as for memory)"
                yield job, error
    finally:
        _end([*idle, *busy])


def _start(function: Callable[[Job], None], threads: int) -> Worker:
    context = get_context("spawn")
    ours, its = context.Pipe()
    process = context.Process(target=_serve, args=(its, function, threads), daemon=True)
    # The worker inherits the blocked signal, and takes it when it is ready to: Ctrl-C prints no trace of its imports.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    its.close()  # so that reading from a worker that died ends
    return Worker(process, ours)


def _serve(pipe: "connection.Connection[object, object]", function: Callable[[Job], None], threads: int) -> None:
    """What a worker does."""
    os.setpgid(0, 0)  # Ctrl-C reaches the parent alone, which interrupts each worker once
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    with contextlib.suppress(KeyboardInterrupt, EOFError):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        import torch

        torch.set_num_threads(min(torch.get_num_threads(), threads))
        while True:
            pipe.send(outcome(function, pipe.recv()))


def outcome(function: Callable[..., None], job: object) -> str:
    """Calls `function` and says what went wrong: "" where nothing did, one line, or the trace of a fault."""
    try:
        function(job)
    except UserError as error:
        return str(error)
    except Exception:
        return traceback.format_exc()
    return ""


def _end_with_parent() -> None:
    parent = parent_process()
    if parent:
        parent.join()
        os.kill(os.getpid(), signal.SIGINT)


def _end(workers: list[Worker]) -> None:
    for worker in workers:
        if worker.process.is_alive() and worker.process.pid:
            os.kill(worker.process.pid, signal.SIGINT)
    for worker in workers:
        worker.process.join(SECONDS_TO_END)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.pipe.close()
