"""Worker processes that take jobs one after the other; a job that fails, or a worker that dies, stops no other job."""

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from multiprocessing import connection, get_context, parent_process, resource_tracker
from multiprocessing.context import SpawnProcess
from typing import NamedTuple, TypeVar

from rerank.utils.errors import UserError

Job = TypeVar("Job")
SECONDS_TO_END = 20.0
"""The time that an interrupted worker has to clean up before it is killed."""


class Worker(NamedTuple):
    """A process and our end of its pipe."""

    process: SpawnProcess
    pipe: "connection.Connection[object, object]"


def work(function: Callable[[Job], None], jobs: Sequence[Job], workers: int) -> Generator[tuple[Job, str], None, None]:
    """Yields each job when it has ended, with its error, "" if it had none.

    `function` is called in `workers` spawned processes, which are reused and write nothing to the terminal. An
    interrupt here, or the end of the iteration (use contextlib.closing), interrupts all of them once and waits for
    them.
    """
    waiting = deque(jobs)
    idle: list[Worker] = []
    busy: dict[Worker, Job] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                worker = idle.pop() if idle else _start(function)
                busy[worker] = waiting.popleft()
                with contextlib.suppress(OSError):  # if it has died, reading from it tells
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


def _start(function: Callable[[Job], None]) -> Worker:
    context = get_context("spawn")
    parent_end, worker_end = context.Pipe()
    process = context.Process(target=_serve, args=(worker_end, function), daemon=True)
    resource_tracker.ensure_running()  # the first worker would start it, which unblocks the signal
    # The worker inherits the blocked signal and unblocks it when it is ready: Ctrl-C prints no trace of its imports.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    worker_end.close()  # so that reading from a dead worker ends
    return Worker(process, parent_end)


def _serve(pipe: "connection.Connection[object, object]", function: Callable[[Job], None]) -> None:
    """The main function of a worker."""
    os.setpgid(0, 0)  # Ctrl-C reaches only the parent, which interrupts each worker once
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a shell's background jobs ignore the first
        signal.signal(number, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    with contextlib.suppress(KeyboardInterrupt, EOFError):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        while True:
            pipe.send(outcome(function, pipe.recv()))


def outcome(function: Callable[..., None], job: object) -> str:
    """Calls `function` and returns its error: "" if there was none, the line of a UserError, or a traceback."""
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
