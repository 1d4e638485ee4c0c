"""Processes that take jobs one after the other: a job that fails, or a worker that dies, costs that job alone."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from multiprocessing import connection, get_context, parent_process
from multiprocessing.context import SpawnProcess
from typing import Any, NamedTuple, TypeVar

from rerank.errors import UserError

Job = TypeVar("Job")
Result = TypeVar("Result")
SECONDS_TO_END = 20.0
"""What an interrupted worker has to leave everything whole before it is killed."""


class Worker(NamedTuple):
    """A process and our end of its pipe."""

    process: SpawnProcess
    pipe: "connection.Connection[object, object]"


def work(function: Callable[[Job], None], jobs: Sequence[Job], workers: int) -> Generator[tuple[Job, str], None, None]:
    """Yields each job, when it has ended, with what went wrong, which is "" where nothing did.

    `function` is called in `workers` spawned processes, which live on, silent. An
    interrupt here, or the end of the iteration (take it under contextlib.closing), interrupts all of them, once, and
    waits for them.
    """
    waiting = deque(jobs)
    idle: list[Worker] = []
    busy: dict[Worker, Job] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                worker = idle.pop() if idle else _start(function)
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


def _start(function: Callable[[Job], None]) -> Worker:
    context = get_context("spawn")
    ours, its = context.Pipe()
    process = context.Process(target=_serve, args=(its, function), daemon=True)
    # The worker inherits the blocked signal, and takes it when it is ready to: Ctrl-C prints no trace of its imports.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    its.close()  # so that reading from a worker that died ends
    return Worker(process, ours)


def _serve(pipe: "connection.Connection[object, object]", function: Callable[[Job], None]) -> None:
    """What a worker does."""
    os.setpgid(0, 0)  # Ctrl-C reaches the parent alone, which interrupts each worker once
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    with contextlib.suppress(KeyboardInterrupt, EOFError):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
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


FEW = 5
"""Blocks that are read sooner than processes start."""


MOST_WORKERS = 8
"""Beyond it one process does not feed the others fast enough."""


def ordered_map(work: Callable[..., Result], items: Iterable[Any], *arguments: object) -> Generator[Result]:
    """`work(item, *arguments)` of each item, in order, done in a process for each processor; a few items are done here.

    `work` is a function of a module. No more than two items a process are in memory.
    """
    items = iter(items)
    first = list(islice(items, FEW))
    if len(first) < FEW:
        yield from (work(item, *arguments) for item in first)
        return
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(MOST_WORKERS, processors)
    waiting: deque[Future[Result]] = deque()
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _leave_interrupts)
    try:
        for item in first:
            waiting.append(pool.submit(work, item, *arguments))
        del first
        for item in items:
            waiting.append(pool.submit(work, item, *arguments))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_interrupts() -> None:
    """Ctrl-C reaches every process; the one that began the work ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
