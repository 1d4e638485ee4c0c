"""An ordered parallel map: applies a function to a stream of items in several processes."""

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import chain, islice
from typing import Any, TypeVar

from rerank.utils.cores import count_cores

Result = TypeVar("Result")
FEW = 5
"""Fewer items than this are done before processes have started."""
MAX_WORKERS = 8
"""One process cannot feed more of them fast enough."""


def ordered_map(function: Callable[..., Result], items: Iterable[Any], *arguments: object) -> Generator[Result]:
    """Yields `function(item, *arguments)` of each item, in order, computed in one process for each core.

    Fewer than FEW items are computed in this process. `function` must be a function of a module. At most two items for
    each process are in memory.
    """
    items = iter(items)
    first = list(islice(items, FEW))
    if len(first) < FEW:
        yield from (function(item, *arguments) for item in first)
        return
    workers = min(MAX_WORKERS, count_cores())
    waiting: deque[Future[Result]] = deque()
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _ignore_interrupts)
    try:
        for item in chain(first, items):
            waiting.append(pool.submit(function, item, *arguments))
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
