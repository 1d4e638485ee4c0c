"""Logging and progress: a bar with the time left on a terminal and in a notebook, else a line every ten seconds."""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from typing import Any, TypeVar

from tqdm import tqdm

Item = TypeVar("Item")
SECONDS_BETWEEN_LINES = 10.0


log = logging.getLogger("rerank")
"""The logger of the package; silent until `log_to_terminal` or the caller configures logging."""


class _Terminal(logging.Handler):
    """Writes lines to standard error, above a progress bar if one is drawn; of several processes, the main one does."""

    def emit(self, record: logging.LogRecord) -> None:
        if _is_main_process():
            tqdm.write(self.format(record), file=sys.stderr)


def log_to_terminal() -> None:
    """Writes the package's messages as plain lines to standard error, as the command line does."""
    if not any(isinstance(handler, _Terminal) for handler in log.handlers):
        log.addHandler(_Terminal())
        log.setLevel(logging.INFO)
        log.propagate = False


def print_result(result: object) -> None:
    """Prints what a command has made on standard output; of several processes, the main one does."""
    if _is_main_process():
        print(result, flush=True)


def _is_main_process() -> bool:
    """Whether this is the first process of a run, or the only one; torchrun and accelerate number them."""
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

    `total` is the number of items, of which an earlier process has done `before`; these are not among `items`.
    `show=False` shows nothing: of several processes, one shows the progress.
    """
    if not show:
        yield from items
    elif sys.stderr.isatty() or _in_notebook():
        with _bar_class()(items, total=total, initial=before, desc=what, leave=False, dynamic_ncols=True) as bar:
            for item in bar:
                yield item
                bar.set_postfix_str(postfix(), refresh=False)
    else:
        yield from _lines(items, total, what, postfix, before)


def _in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and "IPKernelApp" in shell.config


def _bar_class() -> Any:
    """The bar for a notebook if tqdm can draw one there (it needs ipywidgets), else that for a terminal."""
    if _in_notebook() and find_spec("ipywidgets"):
        from tqdm.notebook import tqdm as notebook_tqdm

        return notebook_tqdm
    return tqdm


def _lines(items: Iterable[Item], total: int, what: str, postfix: Callable[[], str], before: int) -> Iterator[Item]:
    start = reported = time.monotonic()
    for done, item in enumerate(items, before + 1):
        yield item
        now = time.monotonic()
        if now - reported >= SECONDS_BETWEEN_LINES and done < total:
            reported = now
            left = (now - start) / (done - before) * (total - done)
            log.info(f"{what}: {done}/{total}, {left:.0f} s left {postfix()}".rstrip())
