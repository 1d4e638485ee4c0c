"""A function beside a test."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor


@contextlib.contextmanager
def beside(function: Callable[[], object]) -> Iterator[None]:
    """Runs the function in a thread during the block, waits for it at the end, and raises its exception there."""
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(function)
        yield
        ended.result()
