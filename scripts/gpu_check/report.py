"""All checks of a device: the table on standard output, and the file with versions, card, table and errors."""

from collections.abc import Sequence
from pathlib import Path

import torch

from rerank.evaluation.tables.table import render
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, check_output
from rerank.utils.progress import log
from scripts.gpu_check.groups import run_groups
from scripts.gpu_check.machine import facts
from scripts.gpu_check.rows import Row, table_of
from scripts.gpu_check.sizes import FULL, SMALL, Setting
from scripts.gpu_check.speed import NOTES


def check_device(device: str, small: bool, out: Path) -> bool:
    """Runs all checks, prints the table, writes `out`, and returns whether every bound holds.

    Raises UserError for a device that this machine does not have, and for an `out` that cannot be written.
    """
    check_output(out)
    setting = Setting(_chosen(device), SMALL if small or device == "cpu" else FULL)
    machine = facts(setting)
    rows = run_groups(setting)
    passed = all(row.passed is not False for row in rows)
    title = f"gpu-check on {machine['device']}: {'pass' if passed else 'FAIL'}"
    with atomic_write(out) as tmp:
        tmp.write_text(markdown(title, machine, rows), encoding="utf-8")
    print(render(table_of(title, rows, NOTES)), end="")
    log.info(f"{out}: attach this file to an issue")
    return passed


def _chosen(device: str) -> str:
    """The device to check: with "auto" a GPU."""
    if device != "auto":
        return device
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    raise UserError(
        "--device auto: PyTorch finds no GPU here (`rerank doctor` says more); --device cpu runs the checks on the "
        "CPU, at small sizes"
    )


def markdown(title: str, machine: dict[str, str], rows: Sequence[Row]) -> str:
    """The content of the file."""
    lines = [f"- {name}: {value}" for name, value in machine.items()]
    errors = [f"## {row.check}\n\n```\n{row.details.rstrip()}\n```" for row in rows if row.details]
    return "\n\n".join([f"# {title}", "\n".join(lines), render(table_of("", rows, NOTES), "markdown"), *errors]) + "\n"
