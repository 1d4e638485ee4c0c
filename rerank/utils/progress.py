"""Progress for people: a bar with the time left on a terminal, a plain line now and then elsewhere."""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")
SECONDS_BETWEEN_LINES = 10.0


log = logging.getLogger("rerank")
"""What the package reports to people; silent until `log_to_terminal` or the caller's own logging is set up."""


class _Terminal(logging.Handler):
    """Writes lines to standard error, above a progress bar if one is drawn."""

    def emit(self, record: logging.LogRecord) -> None:
        tqdm.write(self.format(record), file=sys.stderr)


def log_to_terminal() -> None:
    """Makes the package's messages plain lines on standard error, as the command line shows them."""
    if not any(isinstance(handler, _Terminal) for handler in log.handlers):
        log.addHandler(_Terminal())
        log.setLevel(logging.INFO)
        log.propagate = False


def progress(
    items: Iterable[Item], total: int, what: str, figures: Callable[[], str] = lambda: "", show: bool = True
) -> Iterator[Item]:
    """Hands the items on and shows how far they are; `figures` gives what stands behind the bar (a loss, a rate).

    `total` is the number of items; `show=False` is for processes that share the work of one that shows.
    """
    if not show:
        yield from items
    elif sys.stderr.isatty():
        with tqdm(items, total=total, desc=what, file=sys.stderr, leave=False, dynamic_ncols=True) as bar:
            for item in bar:
                yield item
                bar.set_postfix_str(figures(), refresh=False)
    else:
        yield from _lines(items, total, what, figures)


def _lines(items: Iterable[Item], total: int, what: str, figures: Callable[[], str]) -> Iterator[Item]:
    start = told = time.monotonic()
    for done, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - told >= SECONDS_BETWEEN_LINES and done < total:
            told = now
            left = (now - start) / done * (total - done)
            log.info(f"{what}: {done}/{total}, {left:.0f} s left {figures()}".rstrip())
