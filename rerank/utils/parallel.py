"""Work on several cores: how many there are, an ordered map in processes, and a thread that builds what comes next."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, TypeVar

Item = TypeVar("Item")
Built = TypeVar("Built")
FEW = 5  # fewer items than this are done before processes have started
MAX_WORKERS = 8  # one process cannot feed more of them fast enough


def count_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def prefetch(items: Iterable[Item], build: Callable[[Item], Built]) -> Iterator[tuple[Item, Built]]:
    """Yields each item with `build(item)`, in order; the next one is built while the caller works on this one."""
    with ThreadPoolExecutor(max_workers=1) as background:
        yield from _in_order(background, build, items, 1)


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
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _ignore_interrupts)
    try:
        for _, result in _in_order(pool, function, chain(first, items), 2 * workers):
            yield result
    finally:
        pool.shutdown(cancel_futures=True)


def _in_order(
    pool: Executor, function: Callable[[Item], Built], items: Iterable[Item], ahead: int
) -> Iterator[tuple[Item, Built]]:
    """Yields each item with `function(item)`, computed by the pool, which has `ahead` of the next ones."""
    waiting: deque[tuple[Item, Future[Built]]] = deque()
    for item in items:
        waiting.append((item, pool.submit(function, item)))
        if len(waiting) > ahead:
            done, result = waiting.popleft()
            yield done, result.result()
    while waiting:
        done, result = waiting.popleft()
        yield done, result.result()


def _ignore_interrupts() -> None:
    """Ctrl-C and the end of a terminal reach every process; the main process shuts the pool down."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
