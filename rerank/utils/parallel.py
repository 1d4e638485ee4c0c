"""Work on several cores: an ordered map in processes, a thread that builds what comes next, and worker processes.

Workers take jobs one after the other; a job that fails, or a worker that dies, stops no other job.
"""

import contextlib
import os
import pickle
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from itertools import chain, islice
from multiprocessing import connection, get_context, parent_process, resource_tracker
from multiprocessing.context import SpawnProcess
from typing import Any, NamedTuple, TypeAlias, TypeVar

from rerank.utils.errors import UserError
from rerank.utils.progress import log, progress

Item = TypeVar("Item")
Built = TypeVar("Built")
Job = TypeVar("Job")
Pipe: TypeAlias = "connection.Connection[object, object]"
SECONDS_TO_END = 20.0  # the time that an interrupted worker has to clean up before it is killed
GPUS = "CUDA_VISIBLE_DEVICES"
FEW = 5  # fewer items than this are done before processes have started
MAX_WORKERS = 8  # one process cannot feed more of them fast enough


def count_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def prefetch(items: Iterable[Item], build: Callable[[Item], Built]) -> Iterator[tuple[Item, Built]]:
    """Yields each item with `build(item)`, in order; the next one is built while the caller works on this one."""
    with ThreadPoolExecutor(max_workers=1) as background:
        yield from _in_order(background, lambda item: (item, build(item)), items, 1)


def ordered_map(function: Callable[[Any], Built], items: Iterable[Any]) -> Generator[Built]:
    """Yields `function(item)` of each item, in order, computed in one process for each core.

    Fewer than FEW items are computed in this process. `function` must be a function of a module. At most two items for
    each process are in memory.
    """
    items = iter(items)
    first = list(islice(items, FEW))
    if len(first) < FEW:
        yield from map(function, first)
        return
    workers = min(MAX_WORKERS, count_cores())
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _ignore_interrupts)
    try:
        yield from _in_order(pool, function, chain(first, items), 2 * workers)
    finally:
        pool.shutdown(cancel_futures=True)


def _in_order(pool: Executor, function: Callable[[Item], Built], items: Iterable[Item], ahead: int) -> Iterator[Built]:
    """Yields `function(item)` of each item, computed by the pool, which has `ahead` of the next ones."""
    waiting: deque[Future[Built]] = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _ignore_interrupts() -> None:
    """Ctrl-C and the end of a terminal reach every process; the main process shuts the pool down."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


class Worker(NamedTuple):
    """A process, our end of its pipe, and its number among the workers at the same time."""

    process: SpawnProcess
    pipe: Pipe
    number: int = 0


def work(
    function: Callable[[Job], None], jobs: Sequence[Job], workers: int, gpus: Sequence[str] = ()
) -> Generator[tuple[Job, str], None, None]:
    """Yields each job when it has ended, with its error, "" if it had none.

    `function` is called in `workers` spawned processes, which are reused and write nothing to the terminal. Worker i
    sees one of the `gpus` alone, number i modulo their count, as CUDA_VISIBLE_DEVICES names it. An interrupt here, or
    the end of the iteration (use contextlib.closing), interrupts all of them once and waits for them.
    """
    waiting, numbers = deque(jobs), deque(range(workers))
    idle: list[Worker] = []
    busy: dict[Pipe, tuple[Worker, Job]] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                if not idle:
                    number = numbers.popleft()
                    environment = {GPUS: gpus[number % len(gpus)]} if gpus else {}
                    idle.append(start(_serve, function, environment=environment)._replace(number=number))
                worker, job = idle.pop(), waiting.popleft()
                busy[worker.pipe] = worker, job
                with contextlib.suppress(OSError):  # if it has died, reading from it tells
                    worker.pipe.send(job)
            ready = connection.wait(list(busy))
            for pipe in [pipe for pipe in busy if pipe in ready]:
                worker, job = busy.pop(pipe)
                try:
                    error = str(worker.pipe.recv())
                    idle.append(worker)
                except (EOFError, OSError):
                    worker.process.join()
                    error = f"its process ended with exit code {worker.process.exitcode} (-9: killed, as for memory)"
                    numbers.append(worker.number)
                yield job, error
    finally:
        end([*idle, *(worker for worker, _ in busy.values())])


def failures(
    ended: Generator[tuple[Job, str], None, None], total: int, what: str, name: Callable[[Job], str]
) -> list[tuple[Job, str]]:
    """Waits for the jobs of `work`; returns those that failed, with the error, whose last line is logged meanwhile."""
    failed: list[tuple[Job, str]] = []
    with contextlib.closing(ended):
        for job, error in progress(ended, total, what, lambda: f"{len(failed)} failed" if failed else ""):
            if error:
                failed.append((job, error.strip()))
                log.info(f"{name(job)} failed: {error.strip().splitlines()[-1]}")
    return failed


def start(main: Callable[..., None], *arguments: object, environment: Mapping[str, str] = {}) -> Worker:
    """Spawns a process that calls `main(pipe, *arguments)`, with these variables set before it imports anything.

    It ignores Ctrl-C and ends with this process; `end` interrupts it. It writes nothing to the terminal.
    """
    context = get_context("spawn")
    parent_end, worker_end = context.Pipe()
    call = pickle.dumps((main, arguments))
    process = context.Process(target=_begin, args=(worker_end, dict(environment), call), daemon=True)
    resource_tracker.ensure_running()  # the first worker would start it, which unblocks the signal
    # The worker inherits the blocked signal and unblocks it when it is ready: Ctrl-C prints no trace of its imports.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    worker_end.close()  # so that reading from a dead worker ends
    return Worker(process, parent_end)


def _begin(pipe: Pipe, environment: Mapping[str, str], call: bytes) -> None:
    """What a spawned process does first: its parent alone interrupts it, and it ends with its parent."""
    os.environ.update(environment)
    os.setpgid(0, 0)  # Ctrl-C reaches only the parent, which interrupts each worker once
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a shell's background jobs ignore the first
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as by nohup
            signal.signal(number, signal.default_int_handler)
    threading.Thread(target=_end_with, args=(parent_process(),), daemon=True).start()
    sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    main, arguments = pickle.loads(call)
    with contextlib.suppress(KeyboardInterrupt, EOFError, BrokenPipeError):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        main(pipe, *arguments)


def _serve(pipe: Pipe, function: Callable[..., None]) -> None:
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


def _end_with(parent: Any) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGINT)


def end(workers: Sequence[Worker], seconds: float = SECONDS_TO_END) -> None:
    """Interrupts the workers, and kills those that have not ended after so many seconds."""
    for worker in workers:
        if worker.process.is_alive() and worker.process.pid:
            os.kill(worker.process.pid, signal.SIGINT)
    for worker in workers:
        worker.process.join(seconds)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.pipe.close()
