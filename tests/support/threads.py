"""A function beside a test, whose failure ends the test at once."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from tests.support.patience import SECONDS


@contextlib.contextmanager
def beside(function: Callable[[], object], seconds: float = SECONDS) -> Iterator[threading.Thread]:
    """Runs the function in a thread during the block, and waits for it at the end.

    An exception of the function is raised in the block, wherever the main thread waits then. Raises AssertionError if
    the function has not ended so many seconds after the block.
    """
    failures: list[BaseException] = []

    def call() -> None:
        try:
            function()
        except BaseException as error:
            failures.append(error)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def fail(number: int, frame: FrameType | None) -> None:
        raise failures[0]

    before = signal.signal(signal.SIGUSR1, fail)
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(seconds)
        signal.signal(signal.SIGUSR1, before)
    assert not thread.is_alive(), f"{function} has not ended"
    if failures:  # what waited took the exception for its own
        raise failures[0]
