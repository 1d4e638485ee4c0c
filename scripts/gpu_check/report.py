"""All checks of a device: the table on standard output, and the file with versions, card, table and errors."""

import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import torch

from rerank.evaluation.tables import render
from rerank.experiments.runs.manifest import source_commit, version
from rerank.training.device import device_name, precision_of
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, check_output
from rerank.utils.progress import log
from scripts.command_line import open_app, run_app
from scripts.gpu_check.groups import run_groups
from scripts.gpu_check.rows import Row, table_of
from scripts.gpu_check.setting import Setting, opened
from scripts.gpu_check.speed import NOTES

PACKAGES = ("ir-rerank", "torch", "transformers", "accelerate", "sentence-transformers", "triton")


app = open_app(
    "scripts/gpu-check",
    "Checks rerank on this machine's GPU: its results against the CPU's, then its speed.\n\n"
    "Prints a table, and writes it to a file to attach to an issue. Exit code 1 if a bound does not hold. Takes less "
    "than eight minutes and needs no network.",
)


@app.default
def check(*, device: str = "auto", out: Path = Path("gpu-check.md")) -> None:
    """Checks a device.

    Parameters
    ----------
    device
        auto (CUDA or Apple's GPU), cuda, cuda:1, mps, or cpu, which takes a tiny encoder alone.
    out
        The file to write, in Markdown.
    """
    check_output(out)
    setting = Setting(_chosen(device), device != "cpu")
    machine = facts(setting)
    rows = run_groups(setting)
    passed = all(row.passed is not False for row in rows)
    title = f"gpu-check on {machine['device']}: {'pass' if passed else 'FAIL'}"
    with atomic_write(out) as tmp:
        tmp.write_text(markdown(title, machine, rows), encoding="utf-8")
    print(render(table_of(title, rows, NOTES)), end="")
    log.info(f"{out}: attach this file to an issue")
    sys.exit(0 if passed else 1)


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


def facts(setting: Setting) -> dict[str, str]:
    """What the numbers depend on: name -> value."""
    with opened(setting) as accelerator:
        device, precision = accelerator.device, precision_of(accelerator)
    found = {
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "device": f"{setting.device}: {device_name(device)}",
        "precision of a run": precision,
        "commit": source_commit() or "unknown",
        **{name: version(name) or "not installed" for name in PACKAGES},
        "Python": f"{platform.python_version()}, {platform.platform()}",
        "threads": str(torch.get_num_threads()),
    }
    return found | (_cuda_facts(device) if device.type == "cuda" else {})


def _cuda_facts(device: torch.device) -> dict[str, str]:
    properties = torch.cuda.get_device_properties(device)
    return {
        "cards": str(torch.cuda.device_count()),
        "compute capability": f"{properties.major}.{properties.minor}",
        "memory": f"{properties.total_memory / 1e9:,.1f} GB",
        "CUDA": f"{torch.version.cuda or torch.version.hip}, built for {', '.join(torch.cuda.get_arch_list())}",
        "cuDNN": str(torch.backends.cudnn.version()),
        "driver": _driver(),
    }


def _driver() -> str:
    """The version of NVIDIA's driver."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return "unknown: no nvidia-smi"
    words = [command, "--query-gpu=driver_version,clocks.max.sm,power.limit", "--format=csv,noheader"]
    try:
        ran = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown: {type(error).__name__}"
    return "; ".join(ran.stdout.split("\n")).strip("; ") or "unknown"


main = partial(run_app, app)
