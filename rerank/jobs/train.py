"""Trains an experiment: a data set → folds × (train, score) → runs/<collection>/<experiment>."""

import contextlib
import shutil
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from rerank.config import Config, sections
from rerank.data.folds import FINAL, select_folds
from rerank.data.trec import write_run
from rerank.data.types import Fold, Run
from rerank.jobs.model_card import write_training_card
from rerank.jobs.pretraining.pretrain import pretrain
from rerank.runs.finished_folds import FLAG, FoldEpochs, epochs_from, joined_test_runs
from rerank.runs.layout import LOCK, ExperimentFolder
from rerank.runs.manifest import judgments_hash, outcome, write_manifest
from rerank.runs.settings import save_settings
from rerank.tasks.checks import check_training
from rerank.tasks.dataset import Dataset, FoldTask, open_dataset
from rerank.tasks.folds import draws_queries
from rerank.tasks.text import TextDataset
from rerank.tasks.training_lists import expect_same_lists
from rerank.training.device import device_facts, kept_torch_settings, open_training_accelerator, peak_memory
from rerank.training.gradients import Loss
from rerank.training.loop import kept_epoch, train
from rerank.training.objective import open_loss, validation_value
from rerank.training.processes import exclusive
from rerank.training.tracking import tracked
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write
from rerank.utils.integrity import files_below, record_of
from rerank.utils.locks import locked
from rerank.utils.progress import log


@dataclass(frozen=True)
class Experiment:
    """What all folds of an experiment share; `folds` are those to train.

    `epochs` are those of a final model without validation; None for validation, as of every other fold.
    """

    config: Config
    dataset: Dataset
    folder: ExperimentFolder
    folds: list[Fold]
    loss: Loss
    accelerator: Accelerator
    epochs: FoldEpochs | None = None


def open_experiment(config: Config, fold_name: str, folds_folder: Path | None = None) -> Experiment:
    """Prepares the collection and the folder of an experiment with the fold of that name, "all" or "final".

    `folds_folder` is the experiment whose folds give the number of epochs of the final model (see `epochs_from`).
    Raises UserError for invalid settings, before anything is downloaded, retrieved or trained, and for input files that
    are missing or malformed.
    """
    check_training(config)
    if folds_folder is not None and fold_name != FINAL:
        raise UserError(f"{FLAG} {folds_folder}: acts on --fold {FINAL} alone, got --fold {fold_name}")
    epochs = epochs_from(folds_folder, config) if folds_folder is not None else None
    accelerator = open_training_accelerator(config.training)
    with accelerator.main_process_first():
        dataset = open_dataset(config, fold_name)
        dataset.write_references()
        folder = dataset.folder.experiment(config.output.name or config.loss.name)
        with locked(folder.path, "settings"):
            save_settings(config, folder.settings)
            if isinstance(dataset, TextDataset) and dataset.lists:
                expect_same_lists(folder, dataset.lists)
    if isinstance(dataset, TextDataset) and (unused := dataset.unused_queries):
        log.info(
            f"{config.collection.queries}: {unused} of its queries have no judgments, so training does not use them"
        )
    if isinstance(dataset, TextDataset) and config.pretraining.steps:
        dataset = replace(dataset, encoder=str(pretrain(config, accelerator)))
    folds = [dataset.final_fold(epochs is None)] if fold_name == FINAL else select_folds(dataset.folds, fold_name)
    return Experiment(config, dataset, folder, folds, open_loss(config.loss), accelerator, epochs)


@kept_torch_settings()
def train_folds(config: Config, fold: str = "all", epochs_from: Path | str | None = None) -> ExperimentFolder:
    """Trains the fold of that name, or "all", writes its runs, and returns the folder of the experiment.

    A finished fold is not trained again, an interrupted one is resumed. When all folds are finished, their test runs
    are also written as one run. Raises UserError for invalid settings and input files.

    The fold "final" is the model to deploy: every judged query of the collection trains but 10 %, which validate. With
    `epochs_from`, the folder of an experiment, all of them train, for the median of the best epochs of its folds.
    """
    experiment = open_experiment(config, fold, None if epochs_from is None else Path(epochs_from))
    for part in experiment.folds:
        _train_unless_finished(experiment, part)
    folders = [experiment.folder.fold(name) for name in experiment.dataset.fold_names]
    if fold != FINAL and experiment.accelerator.is_main_process and all(folder.finished for folder in folders):
        write_run(experiment.folder.all_run, joined_test_runs(folders, config), experiment.folder.name)
    experiment.accelerator.wait_for_everyone()
    return experiment.folder


def _train_unless_finished(experiment: Experiment, fold: Fold) -> None:
    folder = experiment.folder.fold(fold.name)
    with exclusive(experiment.accelerator, folder.path, LOCK):
        if folder.finished:
            log.info(f"{folder.tag}, fold {fold.name}: finished already")
        else:
            train_fold(experiment, fold)


def train_fold(experiment: Experiment, fold: Fold) -> None:
    """Trains one fold; its folder gets the checkpoint, the runs, the log and the manifest."""
    start = time.time()
    config, accelerator = experiment.config, experiment.accelerator
    folder, collection = experiment.folder.fold(fold.name), experiment.dataset.folder.path
    log.info(f"training {folder.tag}, fold {fold.name}, with {experiment.dataset.model} on {accelerator.device}")
    task, training, epochs = experiment.dataset.task(fold, accelerator), config.training, experiment.epochs
    if fold.name == FINAL:
        log.info(_describe_final(fold, experiment))
    validate = None if epochs else partial(validation_value, task, measure=training.measure, loss=experiment.loss)
    name = folder.path.relative_to(collection).as_posix()
    median = epochs.median if epochs else None
    with tracked(accelerator, config, collection.name, name, folder.tracking):
        history = train(task, experiment.loss, folder, training, accelerator, validate, epochs=median)
    accelerator.free_memory()
    task.load(folder.checkpoint)
    run = task.score("test") if fold.test else None
    if accelerator.is_main_process:
        best = kept_epoch(history)
        facts = {
            "config": sections(config),
            "fold": asdict(fold),
            "epochs": len(history),
            "best_epoch": best["epoch"],
            "best_valid": best.get("valid"),
            **({"epochs_from": epochs.facts()} if epochs else {}),
            **task.facts(),
            "qrels": {part: judgments_hash(task.qrels(part)) for part in task.judged_parts if getattr(fold, part)},
            **device_facts(accelerator.device),
            "processes": accelerator.num_processes,
            "seconds": round(time.time() - start, 1),
            "peak_memory": peak_memory(accelerator.device),
        }
        _write_results(experiment, fold, task, run, facts)
    accelerator.wait_for_everyone()


def _write_results(experiment: Experiment, fold: Fold, task: FoldTask, run: Run | None, facts: dict[str, Any]) -> None:
    """Writes the model card, the manifest, which records them, and, last, the test run.

    A fold that has a test run is finished; the final model has none, and is finished with its manifest.
    """
    folder = experiment.folder.fold(fold.name)
    facts["outcome"] = {"valid": outcome(folder.valid_run, task.qrels("valid"))} if fold.valid else {}
    with contextlib.ExitStack() as last:
        if run is not None:
            tmp = last.enter_context(atomic_write(folder.test_run))
            write_run(tmp, run, folder.tag)
            facts["outcome"]["test"] = outcome(tmp, task.qrels("test"))
        if isinstance(experiment.dataset, TextDataset):
            name = experiment.dataset.collection.name
            write_training_card(folder.checkpoint, experiment.config, name, fold, facts)
        files = [*files_below(folder.checkpoint), folder.log]
        write_manifest(folder.manifest, {**facts, "files": record_of(folder.path, files)})
    shutil.rmtree(folder.state)  # only an unfinished fold needs it, and it is three times the model


def _describe_final(fold: Fold, experiment: Experiment) -> str:
    queries, config = len(fold.train) + len(fold.valid), experiment.config
    if config.training.lists:
        how = f"for {experiment.epochs.median} epochs" if experiment.epochs else f"{len(fold.valid)} queries validate"
        return f"final: lists of {config.training.lists} train, {how}; no query is left to test"
    which = f"{queries} of the" if draws_queries(config) else f"all {queries}"
    if experiment.epochs:
        of_folds = ", ".join(f"fold {name} {epoch}" for name, epoch in experiment.epochs.by_fold.items())
        how = f"train, for {experiment.epochs.median} epochs: the median of the folds' best epochs ({of_folds})"
    else:
        how = f"train but {len(fold.valid)}, which validate; drawn by seed {config.training.seed}"
    return f"final: {which} judged queries of the collection, those that test folds too, {how}; none is left to test"
