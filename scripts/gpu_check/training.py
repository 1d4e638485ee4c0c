"""Trainings that are interrupted and resumed, or run in two processes, against one that is not.

torchrun --nproc_per_node 2 -m scripts.gpu_check.training DEVICE full|small ENCODER FOLDER

is what the check starts: it trains and scores, and the first process writes FOLDER/scores.json.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from rerank.batches.batch import Batch, make_batch
from rerank.config import TrainingSettings
from rerank.data.types import Candidates, Run
from rerank.experiments.runs.layout import FoldFolder
from rerank.losses import smoothi
from rerank.models.checkpoints import save_cross_encoder
from rerank.models.memory import TokenBudget
from rerank.models.scoring import score_candidates
from rerank.training.device import open_accelerator
from rerank.training.loop import Objective, train
from scripts.benchmarks.workload import Workload, on_device
from scripts.gpu_check.rows import Row, at_most
from scripts.gpu_check.setting import TINY, Setting, cpu_scores, encoder_folder, flat_scores, open_documents, opened

LISTS = 8  # training lists of an epoch
DOCUMENTS = 4  # of a list
LISTS_PER_STEP = 4
LR = 1e-3  # large enough that a few steps change the scores by far more than rounding does
HEAD_LR = 1e-2  # of the head, which starts at random

TOKENS = 1024
"""The budget: less than a step has, so that its gradient is computed in parts."""

BOUNDS = {"cpu": 1e-2, "cuda": 5e-2, "mps": 5e-2}
"""The largest difference of scores after the same training on other processes, over what the training changed.

Sums in another order change the last bits of a gradient, and Adam divides the gradient by its own size. Without
Adam's moments, or with a gradient of half of the lists, the difference is above 0.1.
"""

EPOCHS = 4  # of a training
KEPT = 2  # epochs whose state is complete before the training is interrupted

PROCESSES = 2
ROOT = Path(__file__).parents[2]
RESULT = "scores.json"
SECONDS = {"cuda": 60, "cpu": 600}
"""The time that the processes may take; they wait for each other forever if one of them hangs."""

GRACE = 20
"""The seconds in which torchrun ends its processes."""

LINES = 30
"""Lines of the processes' output that are kept if they fail."""


class ListsTask:
    """Trains a workload's model on its lists, the same in every epoch, by `training` (see `rerank.training.task.Task`).

    `epochs` are those that were trained, counted from 0.
    """

    def __init__(self, workload: Workload, training: TrainingSettings) -> None:
        self.model, self.memory, self.workload = workload.model, TokenBudget(TOKENS), workload
        self.training = training
        self.epochs: list[int] = []

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The encoder and the layer on top."""
        return self.model.parameter_groups(LR, HEAD_LR)

    def training_lists(self, epoch: int) -> Sequence[Candidates]:
        """All lists."""
        self.epochs.append(epoch)
        return self.workload.candidates

    def batch(self, lists: Sequence[Candidates]) -> Batch[Any]:
        """Their passages and labels."""
        return make_batch(lists, self.workload.builder)

    def score(self, part: str) -> Run:
        """No list validates: a run of one document, which `train_lists` does not read."""
        return {"query": {"document": 0.0}}

    def save(self, folder: Path) -> None:
        """A checkpoint."""
        save_cross_encoder(self.model, folder)


def train_lists(
    workload: Workload, folder: Path, epochs: int, accelerator: Accelerator, loss: Callable[..., Tensor] = smoothi
) -> list[int]:
    """Trains the workload's model in place to the end of `epochs`, or goes on with what is in `folder`.

    Returns the epochs that this call trained, counted from 0.
    """
    on_device(workload.model, accelerator)
    task = ListsTask(workload, TrainingSettings(epochs=epochs, lists_per_step=LISTS_PER_STEP, seed=7))
    train(task, Objective(loss, lambda run: {"valid": 0.0}), FoldFolder(folder), accelerator)
    return task.epochs


def check(setting: Setting) -> list[Row]:
    """Rows on the resumed training, whose scores are the same bits, and on the one of two processes."""
    with encoder_folder(TINY) as encoder, TemporaryDirectory() as temporary:
        kept, _ = _trained(setting, encoder, Path(temporary, "parts"), KEPT)
        rows = _resumed(setting, encoder, Path(temporary), kept)
    with encoder_folder(TINY, dropout=0.0) as encoder, TemporaryDirectory() as temporary:
        return rows + _in_two_processes(setting, encoder, Path(temporary))


def _resumed(setting: Setting, encoder: Path, folder: Path, kept: Tensor) -> list[Row]:
    whole, _ = _trained(setting, encoder, folder / "whole", EPOCHS)
    _interrupt(setting, encoder, folder / "parts")
    resumed, epochs = _trained(setting, encoder, folder / "parts", EPOCHS)
    counted = Row(
        "resumed training: epochs that it trains",
        f"{len(epochs)} of {EPOCHS}",
        f"≤ {EPOCHS - KEPT}",
        0 < len(epochs) <= EPOCHS - KEPT,
    )
    what = "resumed against uninterrupted, deterministic: difference / change of the scores"
    return [counted, at_most(what, _of_change(resumed, whole, kept), BOUNDS["mps"] if setting.kind == "mps" else 0.0)]


def _in_two_processes(setting: Setting, encoder: Path, folder: Path) -> list[Row]:
    """Without dropout, which draws other values in each process."""
    what = "two processes against one: difference / change of the scores"
    if setting.kind == "cuda" and torch.cuda.device_count() < PROCESSES:
        return [Row(what, f"not checked: {torch.cuda.device_count()} card")]
    if setting.kind == "mps":
        return [Row(what, "not checked: Apple GPUs are used by one process")]
    before, (alone, _) = cpu_scores(_lists(encoder, setting)), _trained(setting, encoder, folder / "alone", KEPT)
    together, processes = _together(setting, encoder, folder)
    counted = Row("two processes: processes that train", str(processes), f"= {PROCESSES}", processes == PROCESSES)
    return [counted, at_most(what, _of_change(together, alone, before), BOUNDS[setting.kind])]


def _lists(encoder: Path, setting: Setting) -> Workload:
    """The lists, with a fresh model of the encoder in a folder, on the CPU."""
    return open_documents(encoder, LISTS, DOCUMENTS, setting)


def _trained(setting: Setting, encoder: Path, folder: Path, epochs: int) -> tuple[Tensor, list[int]]:
    """The scores on the CPU after the training, and the epochs that were trained now."""
    workload = _lists(encoder, setting)
    with opened(setting, deterministic=setting.kind == "cuda") as accelerator:
        trained = train_lists(workload, folder, epochs, accelerator)
    return cpu_scores(workload), trained


def _interrupt(setting: Setting, encoder: Path, folder: Path) -> None:
    """Goes on with the training, and interrupts its next epoch in the second step."""
    steps = 0

    def interrupted(*grids: Tensor) -> Tensor:
        nonlocal steps
        steps += 1
        if steps > 1:
            raise KeyboardInterrupt
        return smoothi(*grids)

    with opened(setting, deterministic=setting.kind == "cuda") as accelerator, contextlib.suppress(KeyboardInterrupt):
        train_lists(_lists(encoder, setting), folder, EPOCHS, accelerator, interrupted)
        raise RuntimeError("the interrupt did not end the training")


def _of_change(found: Tensor, expected: Tensor, before: Tensor) -> float:
    """The largest difference of scores after a training, over the largest change by that training.

    Scores are taken less the mean of their list: no loss depends on it, so its gradient is rounding.
    """
    grids = [scores.view(-1, DOCUMENTS) for scores in (found, expected, before)]
    found, expected, before = (grid - grid.mean(dim=1, keepdim=True) for grid in grids)
    return float((found - expected).abs().max() / (expected - before).abs().max().clamp_min(torch.finfo().tiny))


def _together(setting: Setting, encoder: Path, folder: Path) -> tuple[Tensor, int]:
    """The scores that torchrun's processes give, and their number."""
    words = ["--standalone", "--nproc_per_node", str(PROCESSES), "-m", "scripts.gpu_check.training"]
    words += [setting.kind, "full" if setting.full else "small", str(encoder), str(folder)]
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


def main(device: str, sizes: str, encoder: str, folder: str) -> None:
    """One of the processes."""
    setting = Setting(device, sizes == "full")
    accelerator = open_accelerator(TrainingSettings(precision=setting.precision, device=device))
    workload = _lists(Path(encoder), setting)
    train_lists(workload, Path(folder, "together"), KEPT, accelerator)
    run = score_candidates(workload.model, workload.builder, workload.candidates, accelerator, TokenBudget(TOKENS))
    if accelerator.is_main_process:
        scores = flat_scores(run, workload.candidates).tolist()
        result = {"processes": accelerator.num_processes, "scores": scores}
        Path(folder, RESULT).write_text(json.dumps(result), encoding="utf-8")
    accelerator.wait_for_everyone()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
