"""The command line of `scripts/gpu-check`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from rerank.cli.main import run_and_exit

command = App(
    name="scripts/gpu-check",
    help="Checks rerank on this machine's GPU: its results against the CPU's, then its speed.\n\n"
    "Prints a table, and writes it to a file to attach to an issue. Exit code 1 if a bound does not hold. Takes less "
    "than eight minutes and needs no network.",
    help_format="plaintext",
    help_on_error=False,
    result_action="return_value",
    suppress_keyboard_interrupt=False,
    version_flags=(),
)


@command.default
def check(
    *, device: str = "auto", small: Annotated[bool, Parameter(negative=())] = False, out: Path = Path("gpu-check.md")
) -> None:
    """Checks a device.

    Parameters
    ----------
    device
        auto (CUDA or Apple's GPU), cuda, cuda:1, mps, or cpu (always --small).
    small
        Checks a tiny encoder alone.
    out
        The file to write, in Markdown.
    """
    from scripts.gpu_check.report import check_device

    sys.exit(0 if check_device(device, small, out) else 1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    run_and_exit(lambda: command(words, exit_on_error=False, print_error=False))
