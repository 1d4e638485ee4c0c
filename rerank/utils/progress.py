"""Logging and progress: a bar on a terminal and in a notebook, otherwise a line every ten seconds."""

import contextlib
import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from tqdm import tqdm

from rerank.utils.errors import one_line

Item = TypeVar("Item")
SECONDS_BETWEEN_LINES = 10.0
ITEMS_BEFORE_ESTIMATE = 3  # items from whose time the time left is estimated, at least
SECONDS_MEASURED = 1.0  # of work that is timed before it begins
FEWEST_MEASURED = 3  # items of such work, at least
SECONDS_SAID = 10.0  # from which it is said how long work takes

log = logging.getLogger("rerank")
"""The logger of the package; silent until `log_to_terminal` or the caller configures logging."""


class _Terminal(logging.Handler):
    """Writes lines to standard error, above a progress bar; with several processes, only the main one writes.

    A command whose standard error is closed ends with an OSError. The threads of a server go on.
    """

    def emit(self, record: logging.LogRecord) -> None:
        if _is_main_process():
            try:
                tqdm.write(one_line(self.format(record)), file=sys.stderr)
            except OSError:
                if threading.current_thread() is threading.main_thread():
                    raise


def log_to_terminal() -> None:
    """Writes the package's messages as plain lines to standard error, as the command line does."""
    if not any(isinstance(handler, _Terminal) for handler in log.handlers):
        log.addHandler(_Terminal())
        log.setLevel(logging.INFO)
        log.propagate = False


_lock = threading.Lock()
_quieted: dict[str, tuple[int, int]] = {}
"""Logger -> its own level, and the number of `quiet` blocks, of all threads, that it is in."""


@contextlib.contextmanager
def quiet(*loggers: str, level: int = logging.ERROR) -> Iterator[None]:
    """Raises the level of loggers to `level`, unless it is higher, within the block.

    Blocks may overlap in any order; the loggers' own levels return when the last block ends.
    """
    with _lock:
        for name in loggers:
            logger = logging.getLogger(name)
            own, blocks = _quieted.get(name, (logger.level, 0))
            _quieted[name] = own, blocks + 1
            logger.setLevel(max(logger.level, level))
    try:
        yield
    finally:
        with _lock:
            for name in loggers:
                own, blocks = _quieted.pop(name)
                if blocks > 1:
                    _quieted[name] = own, blocks - 1
                else:
                    logging.getLogger(name).setLevel(own)


def print_result(result: object) -> None:
    """Prints a command's result to standard output; with several processes, only the main one prints."""
    if _is_main_process():
        print(result, flush=True)


def _is_main_process() -> bool:
    """Whether this is the first or only process; torchrun and accelerate set RANK."""
    return os.environ.get("RANK", "0") == "0"


def progress(
    items: Iterable[Item],
    total: int,
    what: str,
    postfix: Callable[[], str] = lambda: "",
    show: bool = True,
    before: int = 0,
) -> Iterator[Item]:
    """Yields the items and shows the progress; `postfix()` is the text after the bar (a loss, a rate).

    `total` counts all items, including the `before` that an earlier process has done and that are not in `items`.
    `show=False` shows nothing, for all but one of several processes.
    """
    what = one_line(what)
    if not show:
        yield from items
    elif _has_bars():
        from tqdm.auto import tqdm as bar_of_terminal_or_notebook

        with bar_of_terminal_or_notebook(items, what, total, leave=False, dynamic_ncols=True, initial=before) as bar:
            for item in bar:
                yield item
                bar.set_postfix_str(postfix(), refresh=False)
    else:
        costs: Costs[Item] = Costs(lambda item: 1.0, total - before)
        yield from _with_lines(items, total, what, costs, postfix, before)


def progress_by_cost(
    items: Iterable[Item], total: int, what: str, costs: "Costs[Item]", postfix: Callable[[], str] = lambda: ""
) -> Iterator[Item]:
    """As `progress`, for items that take different times: the time left is that of the costs that are left."""
    what = one_line(what)
    if _has_bars():
        from tqdm.auto import tqdm as bar_of_terminal_or_notebook

        form = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]"
        with bar_of_terminal_or_notebook(
            desc=what, total=costs.all, leave=False, dynamic_ncols=True, bar_format=form
        ) as bar:
            for done, item in enumerate(items, 1):
                yield item
                bar.set_postfix_str(f"{done}/{total} {postfix()}".rstrip(), refresh=False)
                bar.update(costs.of(item))
    else:
        yield from _with_lines(items, total, what, costs, postfix, 0)


@dataclass(frozen=True)
class Costs(Generic[Item]):
    """What items cost, in any unit: `of` is the cost of an item, `all` the sum of all that are to come."""

    of: Callable[[Item], float]
    all: float


def _with_lines(
    items: Iterable[Item], total: int, what: str, costs: Costs[Item], postfix: Callable[[], str], before: int
) -> Iterator[Item]:
    start = reported = time.monotonic()
    spent = 0.0
    for done, item in enumerate(items, before + 1):
        yield item
        spent += costs.of(item)
        now = time.monotonic()
        if now - reported >= SECONDS_BETWEEN_LINES and done < total:
            reported = now
            left = f", {duration((costs.all - spent) * (now - start) / spent)} left" if spent else ""
            left = left if done - before >= ITEMS_BEFORE_ESTIMATE else ""
            log.info(f"{what}: {done}/{total}{left} {postfix()}".rstrip())


def _has_bars() -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def timed_sample(work: Callable[[Item], object], items: Iterable[Item]) -> float:
    """The mean seconds of an item, measured for about SECONDS_MEASURED, and over FEWEST_MEASURED items or more.

    The first item, which is slow, does not count unless it is the only one. 0 without an item.
    """
    left, counted = iter(items), 0
    start = now = time.perf_counter()
    for item in itertools.islice(left, 1):
        work(item)
        now = time.perf_counter()
    first, start = now - start, now
    for item in left:
        work(item)
        counted, now = counted + 1, time.perf_counter()
        if now - start >= SECONDS_MEASURED and counted >= FEWEST_MEASURED:
            break
    return (now - start) / counted if counted else first


def say_how_long(what: str, seconds: float) -> None:
    """Logs what will be done, and about how long it takes if that is SECONDS_SAID or longer."""
    log.info(f"{what}: about {duration(seconds)}" if seconds >= SECONDS_SAID else what)


def duration(seconds: float) -> str:
    """A readable duration.

    >>> duration(45), duration(150), duration(7500)
    ('45 s', '2 min', '2 h 5 min')
    """
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
