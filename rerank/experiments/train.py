"""Trains an experiment: a data set → folds × (train, score) → runs/<collection>/<experiment>."""

import json
import shutil
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from accelerate import Accelerator

from rerank.config import Config, sections
from rerank.data.folds import select_folds
from rerank.data.trec import read_run, write_run
from rerank.experiments.checks import check_training
from rerank.experiments.dataset import Dataset, FoldTask, open_dataset
from rerank.experiments.pretraining.pretrain import pretrain
from rerank.experiments.text import TextDataset
from rerank.runs.layout import ExperimentFolder, FoldFolder
from rerank.runs.manifest import judgments_hash, outcome, write_manifest
from rerank.runs.settings import save_settings
from rerank.training.device import device_name, exclusive, open_accelerator, peak_memory
from rerank.training.gradients import Loss
from rerank.training.loop import train
from rerank.training.losses import open_loss
from rerank.training.tracking import tracked
from rerank.training.validation import validation_value
from rerank.types import Fold, Run
from rerank.utils.files import atomic_write
from rerank.utils.progress import log


@dataclass(frozen=True)
class Experiment:
    """What all folds of an experiment share; `folds` are those to train."""

    config: Config
    dataset: Dataset
    folder: ExperimentFolder
    folds: list[Fold]
    loss: Loss
    accelerator: Accelerator

    @property
    def fold_names(self) -> list[str]:
        """The names of all folds of the collection."""
        return self.dataset.fold_names

    def task(self, fold: Fold) -> FoldTask:
        """The task of a fold; raises UserError if there is nothing to learn from or to measure."""
        return self.dataset.task(fold, self.accelerator)

    def log(self, line: str) -> None:
        """Logs a line once, whatever the number of processes."""
        if self.accelerator.is_main_process:
            log.info(line)


def open_experiment(config: Config, fold_name: str) -> Experiment:
    """Prepares the collection and the folder of an experiment with the fold of that name, or "all".

    Raises UserError for invalid settings, before anything is downloaded, retrieved or trained, and for input files that
    are missing or malformed.
    """
    check_training(config)
    accelerator = open_accelerator(config.training.precision, config.training.device)
    with accelerator.main_process_first():
        dataset = open_dataset(config, fold_name)
        dataset.write_references()
        folder = dataset.folder.experiment(config.output.name or config.loss.name)
        save_settings(config, folder.settings)
    if accelerator.is_main_process and isinstance(dataset, TextDataset) and (unused := dataset.unused_queries):
        log.info(
            f"{config.collection.queries}: {unused} of its queries have no judgments, so training does not use them"
        )
    if isinstance(dataset, TextDataset) and config.pretraining.steps:
        dataset = replace(dataset, encoder=str(pretrain(config, accelerator)))
    folds = select_folds(dataset.folds, fold_name)
    return Experiment(config, dataset, folder, folds, open_loss(config.loss), accelerator)


def train_folds(config: Config, fold: str = "all") -> ExperimentFolder:
    """Trains the fold of that name, or "all", writes its runs, and returns the folder of the experiment.

    A finished fold is not trained again, an interrupted one is resumed. When all folds are finished, their test runs
    are also written as one run. Raises UserError for invalid settings and input files.
    """
    experiment = open_experiment(config, fold)
    for part in experiment.folds:
        folder = experiment.folder.fold(part.name)
        with exclusive(experiment.accelerator, folder.path, "fold"):
            if folder.finished:
                experiment.log(f"fold {part.name}: {folder.test_run} already exists")
            else:
                train_fold(experiment, part)
    folders = [experiment.folder.fold(name) for name in experiment.fold_names]
    if experiment.accelerator.is_main_process and all(folder.finished for folder in folders):
        merged: Run = {}
        for folder in folders:
            merged |= read_run(folder.test_run)
        write_run(experiment.folder.all_run, merged, experiment.folder.name)
    experiment.accelerator.wait_for_everyone()
    return experiment.folder


def train_fold(experiment: Experiment, fold: Fold) -> None:
    """Trains one fold; its folder gets the checkpoint, the runs, the best passages, the log and the manifest."""
    start = time.time()
    config, accelerator = experiment.config, experiment.accelerator
    folder, collection = experiment.folder.fold(fold.name), experiment.dataset.folder.path
    experiment.log(f"fold {fold.name}: {folder.tag} with {experiment.dataset.model} on {accelerator.device}")
    task = experiment.task(fold)
    validate = partial(validation_value, task, measure=config.training.measure, loss=experiment.loss)
    name = folder.path.relative_to(collection).as_posix()
    with tracked(accelerator, config, collection.name, name, folder.tracking):
        history = train(task, experiment.loss, folder, config.training, accelerator, validate)
    accelerator.free_memory()
    task.load(folder.checkpoint)
    run = task.score("test")
    if accelerator.is_main_process:
        best = max(history, key=lambda record: record["valid"])
        facts = {
            "config": sections(config),
            "fold": asdict(fold),
            "epochs": len(history),
            "best_epoch": best["epoch"],
            "best_valid": best["valid"],
            **task.facts(),
            "qrels": {part: judgments_hash(task.qrels(part)) for part in task.judged_parts},
            "device": str(accelerator.device),
            "device_name": device_name(accelerator.device),
            "precision": accelerator.mixed_precision,
            "processes": accelerator.num_processes,
            "seconds": round(time.time() - start, 1),
            "peak_memory": peak_memory(accelerator.device),
        }
        _write_results(task, run, folder, facts)
    accelerator.wait_for_everyone()


def _write_results(task: FoldTask, run: Run, folder: FoldFolder, facts: dict[str, Any]) -> None:
    """Writes the passages, the manifest and, last, the test run: a fold that has one is finished."""
    if task.best_passages:
        with atomic_write(folder.passages) as tmp:
            tmp.write_text(json.dumps(task.best_passages, separators=(",", ":")), encoding="utf-8")
    with atomic_write(folder.test_run) as tmp:
        write_run(tmp, run, folder.tag)
        facts["outcome"] = {
            "valid": outcome(folder.valid_run, task.qrels("valid")),
            "test": outcome(tmp, task.qrels("test")),
        }
        write_manifest(folder.manifest, facts)
    shutil.rmtree(folder.state)  # only an unfinished fold needs it, and it is three times the model
