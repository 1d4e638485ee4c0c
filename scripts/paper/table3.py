"""Makes Table 3 of Thonet et al. 2021 (RQ3): seconds per training epoch, by loss.

    python -m scripts.paper.table3 MQ2007 MQ2008 --rounds 5

For each collection, the cells of configs/sweeps/runtime.toml train on its first fold with the ordinary loop, in one
process, in turns: one epoch each, then the next. The table has the median, without validation and checkpoints.
Flags that the script does not know are passed to all cells (--output.folder runs/x, --training.lists-per-step 64).
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import cyclopts
import torch

from rerank.config import Config, replace_setting
from rerank.data.types import Run
from rerank.evaluation.tables.table import aligned
from rerank.jobs.sweep.grid import cells, read_grid
from rerank.jobs.train import Experiment, open_experiment
from rerank.runs.layout import PretrainingFolder
from rerank.runs.settings import read_toml
from rerank.tasks.dataset import FoldTask
from rerank.training.loop import train
from rerank.training.losses import open_loss
from rerank.utils.errors import UserError
from scripts.paper.tables import loss_label

GRID = Path(__file__).parents[2] / "configs" / "sweeps" / "runtime.toml"


def table(grid: Path, collections: list[str], rounds: int, flags: list[str]) -> str:
    """The table of these collections."""
    columns = [seconds_of_epochs(grid, collection, rounds, flags) for collection in collections]
    head = ["loss", *(Path(collection).name for collection in collections)]
    rows = [[name, *(f"{median(column[name]):.3f}" for column in columns)] for name in columns[0]]
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} threads"
    note = f"Seconds per training epoch: median of {rounds}, losses in turns, one process, {where}."
    load = f"Load average at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors."
    return f"{aligned([head, *rows])}\n\n{note}\n{load}\n"


def seconds_of_epochs(grid: Path, collection: str, rounds: int, flags: list[str]) -> dict[str, list[float]]:
    """The seconds of each loss's epochs, one per round, on a collection's first fold."""
    given = read_grid(grid)
    base = read_toml(given.config) if given.config else {}
    configs = cells(given, base, str(given.config), ["--collection", collection, *flags])
    experiment = open_experiment(replace_setting(configs[0], "output.name", "runtime"), given.fold)
    task = TimedTask(experiment.task(experiment.folds[0]))
    first = {name: tensor.clone() for name, tensor in task.model.state_dict().items()}
    seconds: dict[str, list[float]] = {label(config): [] for config in configs}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, rounds + 1):
            for config in configs:
                if number == 1:
                    task.model.load_state_dict(first)
                state = Path(folder) / config.output.name
                seconds[label(config)].append(epoch(experiment, task, config, state, number))
    return seconds


class TimedTask:
    """A task that notes when an epoch begins and ends, and neither validates nor saves."""

    def __init__(self, task: FoldTask) -> None:
        self.task = task
        self.times: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def training_lists(self, epoch: int) -> Sequence[Any]:
        """The task's; the epoch begins."""
        self.clock()
        return self.task.training_lists(epoch)

    def score(self, part: str) -> Run:
        """No run; the epoch has ended."""
        self.clock()
        return {}

    def save(self, folder: Path) -> None:
        """Writes no checkpoint."""
        folder.mkdir()

    def clock(self) -> None:
        """Notes the time."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.times.append(time.perf_counter())


def epoch(experiment: Experiment, task: TimedTask, config: Config, folder: Path, number: int) -> float:
    """Trains the epoch of that number, from 1, resuming from the state in `folder`; its seconds without validation."""
    task.times.clear()
    settings = replace(config.training, epochs=number, patience=number + 1)
    train(task, open_loss(config.loss), PretrainingFolder(folder), settings, experiment.accelerator, lambda run: 0.0)
    begun, ended = task.times
    return ended - begun


def label(config: Config) -> str:
    """The loss and its metric, as SmoothI-NDCG@10."""
    name = loss_label(config.loss.name)
    metric = config.loss.hyperparameters.get("metric")
    return f"{name}-{metric.upper()}" if metric else name


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+")
    parser.add_argument("--grid", type=Path, default=GRID)
    parser.add_argument("--rounds", type=int, default=5)
    given, rest = parser.parse_known_args()
    if given.rounds < 1:
        parser.error(f"--rounds: got {given.rounds}, expected 1 or more")
    try:
        print(table(given.grid, given.collections, given.rounds, rest))
    except (UserError, cyclopts.CycloptsError) as error:
        sys.exit(f"table3.py: {error}")
