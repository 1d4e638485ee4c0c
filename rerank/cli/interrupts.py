"""Ctrl-C, SIGTERM and SIGHUP end a command in the same way: it cleans up, prints one line, and exits."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

ENDINGS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
"""The signals that end a command, and what has then happened to it."""

PAUSE = 0.05
"""Seconds after which a KeyboardInterrupt that Python has discarded is raised again."""


class Interrupts:
    """Makes the first of the signals a KeyboardInterrupt; another one ends the process at once.

    Python discards an exception that a weakref's callback or a destructor raises, also a KeyboardInterrupt: it only
    calls `sys.unraisablehook`. An alarm then raises it again, until it reaches the command.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.discarded = False
        self.reported = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signals, and of the alarm of a discarded one."""
        if number == signal.SIGALRM and not self.discarded:
            return
        if self.received and not self.discarded:
            self.report()
            os._exit(self.exit_code)
        self.received = self.received or signal.Signals(number)
        self.discarded = False
        raise KeyboardInterrupt

    def unraisable(self, found: Any, report: Callable[[Any], object]) -> None:
        """The hook for discarded exceptions: those that are no KeyboardInterrupt of `handle` are reported."""
        if self.received and issubclass(found.exc_type, KeyboardInterrupt):
            self.discarded = True
            signal.signal(signal.SIGALRM, self.handle)
            signal.setitimer(signal.ITIMER_REAL, PAUSE)
        else:
            report(found)

    @property
    def exit_code(self) -> int:
        """The shell's code for a process that the signal has ended."""
        return 128 + (self.received or signal.SIGINT)

    def report(self, what: str = "nothing is left half-written, and the same command goes on from here") -> None:
        """Prints one line on standard error, once; `what` is what the end of the command leaves."""
        self.discarded = False
        if self.reported:
            return
        self.reported = True
        ending = ENDINGS[self.received or signal.SIGINT]
        with contextlib.suppress(OSError, ValueError):  # after a hang-up there may be no terminal
            print(f"rerank: {ending}; {what}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def handled_interrupts() -> Iterator[Interrupts]:
    """Handles the signals in the block, but those that this process ignores from its start, as nohup makes it.

    A signal that was received stays handled after the block, as the process is about to end.
    """
    interrupts, before, hook = Interrupts(), {}, sys.unraisablehook
    if threading.current_thread() is threading.main_thread():  # Python lets no other thread set handlers
        for number in ENDINGS:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                before[number] = signal.signal(number, interrupts.handle)
        sys.unraisablehook = lambda found: interrupts.unraisable(found, hook)
    try:
        yield interrupts
    finally:
        if not interrupts.received:
            sys.unraisablehook = hook
            for number, handler in before.items():
                signal.signal(number, handler)
