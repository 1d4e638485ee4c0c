"""Work on several cores: how many there are, an ordered map in processes, and a thread that builds what comes next."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, TypeVar

Item = TypeVar("Item")
Built = TypeVar("Built")
Result = TypeVar("Result")
FEW = 5
"""Fewer items than this are done before processes have started."""
MAX_WORKERS = 8
"""One process cannot feed more of them fast enough."""


def count_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def prefetch(items: Iterable[Item], build: Callable[[Item], Built]) -> Iterator[tuple[Item, Built]]:
    """Yields each item with `build(item)`, in order; the next one is built while the caller works on this one."""
    with ThreadPoolExecutor(max_workers=1) as background:
        current = None
        for item in items:
            following = item, background.submit(build, item)
            if current is not None:
                yield current[0], current[1].result()
            current = following
        if current is not None:
            yield current[0], current[1].result()


def ordered_map(function: Callable[[Any], Result], items: Iterable[Any]) -> Generator[Result]:
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
    waiting: deque[Future[Result]] = deque()
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _ignore_interrupts)
    try:
        for item in chain(first, items):
            waiting.append(pool.submit(function, item))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _ignore_interrupts() -> None:
    """Ctrl-C and the end of a terminal reach every process; the main process shuts the pool down."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
