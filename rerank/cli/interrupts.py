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
        self.received = signal.SIGINT
        self.cleaning_up = self.reported = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signals."""
        if self.cleaning_up:
            self.report()
            os._exit(self.exit_code)
        self.received = signal.Signals(number)
        self.cleaning_up = True
        raise KeyboardInterrupt

    @property
    def exit_code(self) -> int:
        """The shell's code for a process that the signal has ended."""
        return 128 + self.received

    def report(self) -> None:
        """Prints one line on standard error, once."""
        if self.reported:
            return
        self.reported = True
        line = f"rerank: {ENDINGS[self.received]}; nothing is left half-written, and the same command goes on from here"
        with contextlib.suppress(OSError, ValueError):  # after a hang-up there may be no terminal
            print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def handled_interrupts() -> Iterator[Interrupts]:
    """Handles the signals in the block; those that this process was started to ignore, as by nohup, stay ignored.

    After one was received it stays so to the end of the process, which is near. Only a main thread can handle signals.
    """
    interrupts, before = Interrupts(), {}
    if threading.current_thread() is threading.main_thread():
        for number in ENDINGS:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                before[number] = signal.signal(number, interrupts.handle)
    try:
        yield interrupts
    finally:
        if not interrupts.cleaning_up:
            for number, handler in before.items():
                signal.signal(number, handler)
