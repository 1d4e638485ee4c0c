"""The command line: its entry, what it makes of errors and signals, and its exit codes.

It imports little before it handles signals, so that Ctrl-C is one line from the start.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from rerank.cli.interrupts import handled_interrupts
from rerank.cli.system_errors import CLOSED_PIPE, FULL, is_of_a_file


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line."""
    words = list(sys.argv[1:] if arguments is None else arguments)

    def call() -> None:
        from rerank.cli.app import app

        app(words, exit_on_error=False, print_error=False)

    run_and_exit(call)


def run_and_exit(call: Callable[[], object]) -> None:
    """Calls a command; a user error, or a file that the system refuses, is one line on standard error and exit code 2.

    Ctrl-C, SIGTERM and SIGHUP are one line too, and exit codes 130, 143 and 129.
    """
    with handled_interrupts() as interrupts:
        try:
            _call_and_exit(call)
        except KeyboardInterrupt:
            interrupts.report()
            sys.exit(interrupts.exit_code)


def _end_processes() -> None:
    """Ends the group of the processes of a command that has ended well; one without accelerate has none."""
    if "accelerate" in sys.modules:
        from rerank.training.processes import end_processes

        end_processes()


def _call_and_exit(call: Callable[[], object]) -> None:
    from cyclopts import CycloptsError

    from rerank.utils.errors import UserError
    from rerank.utils.progress import log_to_terminal

    log_to_terminal()
    try:
        call()
        _end_processes()
        sys.stdout.flush()
    except (UserError, CycloptsError) as error:
        _fail(error)
    except OSError as error:
        if is_of_a_file(error):
            _fail(error)
        if error.errno not in (CLOSED_PIPE, *FULL) or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise Python reports it again at exit
        if error.errno in FULL:
            print(f"rerank: standard output: {error.strerror}", file=sys.stderr)
        sys.exit(2 if error.errno in FULL else 141)  # 141: the shell's code for writing to a closed pipe


def _fail(error: Exception) -> NoReturn:
    from rerank.cli.errors import message

    print(f"rerank: {message(error)}", file=sys.stderr)
    sys.exit(2)
