"""Ctrl-C, SIGTERM and SIGHUP end a command in the same way: it cleans up, prints one line, and exits."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

ENDINGS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
"""The signals that end a command, and what has then happened to it."""


class Interrupts:
    """Makes the first of the signals a KeyboardInterrupt; another one ends the process at once."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.reported = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signals."""
        if self.received:
            self.report()
            os._exit(self.exit_code)
        self.received = signal.Signals(number)
        raise KeyboardInterrupt

    @property
    def exit_code(self) -> int:
        """The shell's code for a process that the signal has ended."""
        return 128 + (self.received or signal.SIGINT)

    def report(self) -> None:
        """Prints one line on standard error, once."""
        if self.reported:
            return
        self.reported = True
        ending = ENDINGS[self.received or signal.SIGINT]
        with contextlib.suppress(OSError, ValueError):  # after a hang-up there may be no terminal
            print(
                f"rerank: {ending}; nothing is left half-written, and the same command goes on from here",
                file=sys.stderr,
                flush=True,
            )


@contextlib.contextmanager
def handled_interrupts() -> Iterator[Interrupts]:
    """Handles the signals in the block, but those that this process ignores from its start, as nohup makes it.

    A signal that was received stays handled after the block, as the process is about to end.
    """
    interrupts, before = Interrupts(), {}
    if threading.current_thread() is threading.main_thread():  # Python lets no other thread set handlers
        for number in ENDINGS:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                before[number] = signal.signal(number, interrupts.handle)
    try:
        yield interrupts
    finally:
        if not interrupts.received:
            for number, handler in before.items():
                signal.signal(number, handler)
