"""The entry of the command line: turns errors and signals into one line and an exit code.

It imports little before it handles signals, so that Ctrl-C prints one line from the start.
"""

import contextlib
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from cyclopts import Token

ENDINGS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
"""The signals that end a command, and the word for it in its last line."""

ALLOCATOR_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
"""The environment variables with the settings of torch's allocator; the first is the name since torch 2.9."""

TOGETHER = {signal.SIGINT: 0.2, signal.SIGTERM: 1.0, signal.SIGHUP: 1.0}
"""Seconds after the first signal in which such a signal is the same request; a later one ends the process at once.

Supervisors, shells and wrappers send a signal to a process and to its group. On a busy machine the second handler can
run long after the first. No key sends SIGTERM or SIGHUP, so nobody waits for the second of these, and supervisors use
SIGKILL after some seconds. A person needs more than 0.2 s between two presses of Ctrl-C.
"""

COLLECTION_BY_FLAG = ("train", "retrieve")
"""Commands without an argument, whose collection is named by a flag."""

LONGEST = 2000
"""Characters of an error's line; the middle of a longer one is left out."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if sys.platform == "linux" and not any(os.environ.get(name) for name in ALLOCATOR_SETTINGS):
        # Micro-batches differ in size, and fixed segments of a GPU's memory would become fragmented.
        os.environ[ALLOCATOR_SETTINGS[0]] = "expandable_segments:True"

    def call() -> None:
        from rerank.cli.app import run

        run(words)

    run_and_exit(call)


def run_and_exit(call: Callable[[], object]) -> None:
    """Calls a command; prints a user's mistake or an error about a file as one line, and exits with code 2.

    Ctrl-C, SIGTERM and SIGHUP also print one line and exit with 130, 143 and 129.
    """
    with _handled_interrupts() as interrupts:
        try:
            _call(call)
            if interrupts.received:  # a library caught the KeyboardInterrupt
                raise KeyboardInterrupt
        except KeyboardInterrupt as interrupt:
            interrupts.report(*interrupt.args)
            sys.exit(interrupts.exit_code)
        except Exception:  # a library caught it in the middle of an import, and now lacks the rest
            if not interrupts.received:
                raise
            interrupts.report()
            sys.exit(interrupts.exit_code)


class _Interrupts:
    """Raises KeyboardInterrupt at the first signal; a second one ends the process at once."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.at = 0.0
        self.reported = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signals."""
        now = time.monotonic()
        if self.received and now - self.at < TOGETHER[signal.Signals(number)]:
            return
        if self.received:
            self.report()
            os._exit(self.exit_code)
        self.received, self.at = signal.Signals(number), now
        raise KeyboardInterrupt

    @property
    def exit_code(self) -> int:
        """The shell's exit code for a process that the signal ended."""
        return 128 + (self.received or signal.SIGINT)

    def report(self, what: str = "nothing is left half-written, and the same command goes on from here") -> None:
        """Prints one line on standard error, once; `what` describes the state that the command leaves."""
        if self.reported:
            return
        self.reported = True
        ending = ENDINGS[self.received or signal.SIGINT]
        with contextlib.suppress(OSError, ValueError):  # after a hang-up there may be no terminal
            print(f"rerank: {ending}; {what}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _handled_interrupts() -> Iterator[_Interrupts]:
    """Handles the signals within the block, except signals that the process ignored at its start, as under nohup.

    After a signal was received, the handlers stay, as the process is about to end.
    """
    interrupts, before = _Interrupts(), {}
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


def _call(call: Callable[[], object]) -> None:
    from cyclopts import CycloptsError

    from rerank.utils.errors import UserError
    from rerank.utils.progress import log_to_terminal

    log_to_terminal()
    try:
        call()
        if "accelerate" in sys.modules:  # several processes leave their group together
            from rerank.training.device import end_processes

            end_processes()
        sys.stdout.flush()
    except (UserError, CycloptsError) as error:
        _fail(error)
    except OSError as error:
        from rerank.utils.files import FULL

        if isinstance(error.filename, str | bytes):
            _fail(error)
        if error.filename is not None or error.errno not in (errno.EPIPE, *FULL):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise Python reports it again at exit
        if error.errno == errno.EPIPE:
            sys.exit(141)  # the shell's code for writing to a closed pipe
        print(f"rerank: standard output: {error.strerror}", file=sys.stderr)
        sys.exit(2)


def _fail(error: Exception) -> NoReturn:
    """Prints an error of ours, of cyclopts or of the system as one line, and exits with code 2."""
    from rerank.utils.errors import one_line

    text = _in_our_style(error)
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"
    print(f"rerank: {one_line(' '.join(text.split()))}", file=sys.stderr)
    sys.exit(2)


def _in_our_style(error: Exception) -> str:
    """The message of an error; those of cyclopts and the system with the flag, the value and the file of --config."""
    from cyclopts import CoercionError, MissingArgumentError, UnknownOptionError, UnusedCliTokensError, ValidationError

    from rerank.config.flags import setting_flags

    text = str(error)
    chain = getattr(error, "command_chain", None) or ()
    command = " ".join(["rerank", *chain])
    if isinstance(error, UnknownOptionError):
        flag = (error.token.keyword or error.token.value).partition("=")[0]
        known, hyperparameter = setting_flags(), f"--loss.{flag.lstrip('-')}"
        if flag in known:
            text = f"{flag}: has no effect on `{command}`, which does not take it"
        elif hyperparameter in known:
            text = f"Unknown option: {flag}. Did you mean {hyperparameter}?"
    elif isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        given = error.unused_tokens[0]
        text = f"{given}: `{command}` takes no such argument; `{command} --help` shows what it takes"
        if chain and chain[0] in COLLECTION_BY_FLAG:
            text = f"{given}: `{command}` takes no argument; --collection {given} names a collection"
    elif (
        isinstance(error, MissingArgumentError)
        and error.argument
        and error.keyword is None
        and "Did you mean" not in text
    ):
        is_flag = error.argument.index is None
        name = error.argument.name if is_flag else error.argument.name.removeprefix("--").upper()
        text = f"`{command}`: expected {name}, got none; `{command} --help` has an example"
    elif isinstance(error, CoercionError) and error.msg is not None:  # raised by a converter of ours
        text = f"{_file_of(error.token)}{text}"
    elif isinstance(error, ValidationError) and error.argument and error.exception_message:
        source = _file_of(error.argument.tokens[0]) if error.argument.tokens else ""
        text = f"{source}{error.argument.name}: got {error.argument.value}, {error.exception_message}"
    elif isinstance(error, OSError):
        text = f"{os.fsdecode(error.filename)}: {error.strerror}"
    return text


def _file_of(token: "Token | None") -> str:
    """The file that a value comes from, and a colon; "" for a flag."""
    return f"{token.source}: " if token and token.source not in ("", "cli") else ""
