"""The command line of `scripts/gpu-check`."""

import sys
from functools import partial
from pathlib import Path

from scripts.command_line import open_app, run_app

command = open_app(
    "scripts/gpu-check",
    "Checks rerank on this machine's GPU: its results against the CPU's, then its speed.\n\n"
    "Prints a table, and writes it to a file to attach to an issue. Exit code 1 if a bound does not hold. Takes less "
    "than eight minutes and needs no network.",
)


@command.default
def check(*, device: str = "auto", out: Path = Path("gpu-check.md")) -> None:
    """Checks a device.

    Parameters
    ----------
    device
        auto (CUDA or Apple's GPU), cuda, cuda:1, mps, or cpu, which takes a tiny encoder alone.
    out
        The file to write, in Markdown.
    """
    from scripts.gpu_check.report import check_device

    sys.exit(0 if check_device(device, out) else 1)


main = partial(run_app, command)
