"""Two processes, each with a card of its own, against one: the same training, and every document scored once."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from scripts.benchmarks.workload import on_device
from scripts.gpu_check.lists_training import (
    TRAINED_BOUNDS,
    of_change,
    open_lists,
    tiny_encoder,
    train_lists,
)
from scripts.gpu_check.rank import EPOCHS, RESULT
from scripts.gpu_check.rows import Row, at_most
from scripts.gpu_check.setting import cpu_scores, opened
from scripts.gpu_check.sizes import Setting

PROCESSES = 2
ROOT = Path(__file__).parents[2]
SECONDS = {"cuda": 60, "cpu": 600}
"""The time that the processes may take; they wait for each other forever if one of them hangs."""

GRACE = 20
"""The seconds in which torchrun ends its processes."""

LINES = 30
"""Lines of the processes' output that are kept if they fail."""


def check(setting: Setting) -> list[Row]:
    """Rows on the scores of two processes, or one that says why there are none."""
    what = "two processes against one: difference / change of the scores"
    if setting.kind == "cuda" and torch.cuda.device_count() < PROCESSES:
        return [Row(what, f"not checked: {torch.cuda.device_count()} card")]
    if setting.kind == "mps":
        return [Row(what, "not checked: Apple GPUs are used by one process")]
    with tiny_encoder() as encoder, TemporaryDirectory() as temporary:
        workload = open_lists(encoder, setting)
        before = cpu_scores(workload)
        with opened(setting) as accelerator:
            on_device(workload.model, accelerator)
            train_lists(workload, Path(temporary, "alone"), EPOCHS, accelerator)
        alone = cpu_scores(workload)
        together, processes = _together(setting, encoder, Path(temporary))
    counted = Row("two processes: processes that train", str(processes), f"= {PROCESSES}", processes == PROCESSES)
    return [counted, at_most(what, of_change(together, alone, before), TRAINED_BOUNDS[setting.kind])]


def _together(setting: Setting, encoder: Path, folder: Path) -> tuple[Tensor, int]:
    """The scores that torchrun's processes give, and their number."""
    words = ["--standalone", "--nproc_per_node", str(PROCESSES), "-m", "scripts.gpu_check.rank"]
    words += [setting.kind, "full" if setting.sizes.is_full else "small", str(encoder), str(folder)]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        output, _ = process.communicate(timeout=SECONDS[setting.kind])
    finally:
        if process.poll() is None:
            process.terminate()  # torchrun then ends its processes
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=GRACE)
            process.kill()
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode} of torchrun\n" + "\n".join(output.splitlines()[-LINES:]))
    result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    return torch.tensor(result["scores"]), result["processes"]
