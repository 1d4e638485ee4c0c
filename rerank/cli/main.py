"""The command line: its entry, what it makes of errors and signals, and its exit codes.

It imports little before it handles signals, so that Ctrl-C is one line from the start.
"""

import errno
import os
import sys
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import NoReturn

from rerank.cli.interrupts import handled_interrupts

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line."""
    words = list(sys.argv[1:] if arguments is None else arguments)

    def call() -> None:
        from rerank.cli.app import app
        from rerank.cli.words import SECTION, take_plugins, take_section
        from rerank.utils.plugins import add_plugins, load_plugins

        left, modules = take_plugins(words)
        if modules:
            add_plugins(modules)
            load_plugins()
        left, section = take_section(left)
        SECTION.set(section)
        app(left, exit_on_error=False, print_error=False)

    run_and_exit(lambda: copy_context().run(call))


def run_and_exit(call: Callable[[], object]) -> None:
    """Calls a command; a mistake of the user, or an error about a file, is one line on standard error and exit code 2.

    Ctrl-C, SIGTERM and SIGHUP are one line too, and exit codes 130, 143 and 129.
    """
    with handled_interrupts() as interrupts:
        try:
            _call(call)
            if interrupts.received:  # its KeyboardInterrupt was discarded, and the work is done
                raise KeyboardInterrupt
        except KeyboardInterrupt as interrupt:
            interrupts.report(*interrupt.args)
            sys.exit(interrupts.exit_code)


def _call(call: Callable[[], object]) -> None:
    from cyclopts import CycloptsError

    from rerank.utils.errors import UserError
    from rerank.utils.progress import log_to_terminal

    log_to_terminal()
    try:
        call()
        if "accelerate" in sys.modules:  # several processes end their group together
            from rerank.training.processes import end_processes

            end_processes()
        sys.stdout.flush()
    except (UserError, CycloptsError) as error:
        _fail(error)
    except OSError as error:
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
    from rerank.cli.errors import message

    print(f"rerank: {message(error)}", file=sys.stderr)
    sys.exit(2)
