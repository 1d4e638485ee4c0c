"""The command lines of scripts: parsed as that of rerank, with its exit codes and lines for mistakes and signals."""

import sys
from collections.abc import Sequence

from cyclopts import App

from rerank.cli.main import run_and_exit


def open_app(name: str, description: str) -> App:
    """The command line of a script; its commands are registered as cyclopts has it."""
    return App(
        name=name,
        help=description,
        help_format="plaintext",
        help_on_error=False,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        version_flags=(),
    )


def run_app(app: App, arguments: Sequence[str] | None = None) -> None:
    """Runs a command line on these words, or on those of the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    run_and_exit(lambda: app(words, exit_on_error=False, print_error=False))
