"""Work on several cores: a prefetch thread, an ordered map in processes, and worker processes.

Workers take jobs one after the other. A failed job or a dead worker does not stop the other jobs.
"""

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain, islice
from multiprocessing import active_children, get_context, parent_process, resource_tracker
from multiprocessing.process import BaseProcess
from typing import TypeVar

from rerank.utils.errors import UserError
from rerank.utils.progress import Costs, log, progress_by_cost

Item = TypeVar("Item")
Built = TypeVar("Built")
Job = TypeVar("Job")
SECONDS_TO_END = 20.0  # time for an interrupted worker to clean up before it is killed
SECONDS_OF_ORPHANS = 5.0  # the same for a worker whose parent has died
GPUS = "CUDA_VISIBLE_DEVICES"
FEW = 5  # fewer items are done before processes would have started
MAX_WORKERS = 8  # one process cannot feed more workers fast enough
ABRUPT = "ended abruptly: killed, as for lack of memory"  # how the system ends the largest process


def count_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def prefetch(items: Iterable[Item], build: Callable[[Item], Built]) -> Iterator[tuple[Item, Built]]:
    """Yields each item with `build(item)`, in order; a thread builds the next while the caller uses the current one."""
    with ThreadPoolExecutor(max_workers=1) as background:
        yield from _in_order(lambda item: background.submit(lambda: (item, build(item))), items, 1)


def ordered_map(function: Callable[[Item], Built], items: Iterable[Item]) -> Generator[Built]:
    """Yields `function(item)` of each item, in order, computed in one process per core.

    Fewer than FEW items are computed in this process. `function` must be defined at the top level of a module. At most
    two items per process are in memory. Raises UserError if a process is killed.
    """
    items = iter(items)
    first = list(islice(items, FEW))
    if len(first) < FEW:
        yield from map(function, first)
        return
    workers = min(MAX_WORKERS, count_cores())
    pool = ProcessPoolExecutor(workers, get_context("spawn"), begin_worker)

    def submit(item: Item) -> Future[Built]:
        with starting_workers():
            return pool.submit(function, item)

    try:
        yield from _in_order(submit, chain(first, items), 2 * workers)
    except BrokenProcessPool:
        raise UserError(f"one of {workers} worker processes {ABRUPT}; free memory and run the command again") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _in_order(submit: Callable[[Item], Future[Built]], items: Iterable[Item], ahead: int) -> Iterator[Built]:
    """Yields the result of each item, in order; the results of the `ahead` next items are being computed."""
    waiting: deque[Future[Built]] = deque()
    for item in items:
        waiting.append(submit(item))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


@contextlib.contextmanager
def starting_workers() -> Iterator[None]:
    """Blocks SIGINT while processes start; they inherit the block until `begin_worker`, so none prints a traceback."""
    resource_tracker.ensure_running()  # the first process would start it, and starting it unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def begin_worker(environment: Mapping[str, str] = {}) -> None:
    """Prepares a spawned process: only its parent interrupts it, and it ends when its parent ends.

    The environment is set before any other import. The process writes nothing to standard error.
    """
    os.environ.update(environment)
    os.setpgid(0, 0)  # Ctrl-C reaches only the parent, which interrupts each worker once
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # background jobs of a shell ignore SIGINT
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, signal.default_int_handler)
    threading.Thread(target=_end_with, args=(parent_process(),), daemon=True).start()
    sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(SECONDS_OF_ORPHANS)
    os._exit(1)


def end_processes(processes: Iterable[BaseProcess], seconds: float = SECONDS_TO_END) -> None:
    """Interrupts processes, and kills each one that does not end within `seconds`."""
    living = [process for process in processes if process.is_alive()]
    for process in living:
        os.kill(process.pid or 0, signal.SIGINT)
    for process in living:
        process.join(seconds)
        process.kill()


@dataclass
class _Worker:
    """A process that does one job at a time; if it dies, the next job starts a new process."""

    environment: Mapping[str, str]
    pool: ProcessPoolExecutor | None = None
    process: BaseProcess | None = None

    def submit(self, function: Callable[[Job], None], job: Job) -> Future[str]:
        died = self.process is not None and not self.process.is_alive()  # perhaps after its last job
        if self.pool is None or died:
            self.pool = ProcessPoolExecutor(1, get_context("spawn"), begin_worker, (self.environment,))
        before = active_children()
        with starting_workers():
            future = self.pool.submit(outcome, function, job)
        self.process = next((process for process in active_children() if process not in before), self.process)
        return future


def work(
    function: Callable[[Job], None], jobs: Sequence[Job], workers: int, gpus: Sequence[str] = ()
) -> Generator[tuple[Job, str], None, None]:
    """Yields each finished job with its error, or "" for success.

    `function` is called in `workers` spawned processes, which are reused and write nothing to the terminal. Worker i
    sees only one GPU, `gpus[i % len(gpus)]`, through CUDA_VISIBLE_DEVICES. An interrupt here, or the end of the
    iteration (use contextlib.closing), interrupts all workers once and waits for them.
    """
    waiting, busy = deque(jobs), dict[Future[str], tuple[_Worker, Job]]()
    all_workers = [_Worker({GPUS: gpus[number % len(gpus)]} if gpus else {}) for number in range(workers)]
    idle = all_workers[::-1]
    try:
        while waiting or busy:
            while waiting and idle:
                worker, job = idle.pop(), waiting.popleft()
                busy[worker.submit(function, job)] = worker, job
            for ended in wait(busy, return_when=FIRST_COMPLETED).done:
                worker, job = busy.pop(ended)
                failure = ended.exception()
                if isinstance(failure, BrokenProcessPool):
                    worker.pool = None
                    error = f"its process {ABRUPT}"
                else:
                    error = "its process was interrupted" if isinstance(failure, KeyboardInterrupt) else ended.result()
                idle.append(worker)
                yield job, error
    finally:
        for worker in all_workers:
            if worker.pool:
                worker.pool.shutdown(wait=False, cancel_futures=True)
        end_processes(worker.process for worker in all_workers if worker.process)


def outcome(function: Callable[[Job], None], job: Job) -> str:
    """Calls `function` and returns its error: "" for success, the line of a UserError, or a traceback."""
    try:
        function(job)
    except UserError as error:
        return str(error)
    except Exception:
        return traceback.format_exc()
    return ""


def failures(
    ended: Generator[tuple[Job, str], None, None],
    total: int,
    what: str,
    name: Callable[[Job], str],
    cost: Callable[[Job], float] = lambda job: 1.0,
    whole: float = 0.0,
) -> list[tuple[Job, str]]:
    """Waits for the jobs of `work`, logs the last line of each error, and returns the failed jobs with their errors.

    `cost` is what a job costs, in any unit, and `whole` what all cost: by default each costs the same.
    """
    failed: list[tuple[Job, str]] = []
    costs: Costs[tuple[Job, str]] = Costs(lambda ended: cost(ended[0]), whole or total)
    with contextlib.closing(ended):
        for job, error in progress_by_cost(ended, total, what, costs, lambda: f"{len(failed)} failed" * bool(failed)):
            if error:
                failed.append((job, error.strip()))
                log.info(f"{name(job)} failed: {error.strip().splitlines()[-1]}")
    return failed
