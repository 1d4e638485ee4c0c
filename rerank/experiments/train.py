"""Trains an experiment: a data set → folds × (train, score) → runs/<collection>/<experiment>."""

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from accelerate import Accelerator

from rerank.config import Config, sections
from rerank.data.letor.layouts import is_feature_source
from rerank.data.trec import write_run
from rerank.data.types import FINAL, Fold, Run
from rerank.experiments.checks import check_training
from rerank.experiments.collection import ENOUGH
from rerank.experiments.feature_task import FeatureDataset, FeatureTask, open_features
from rerank.experiments.model_card import write_training_card
from rerank.experiments.runs.experiment_results import joined_test_runs
from rerank.experiments.runs.layout import LOCK, ExperimentFolder, FoldFolder
from rerank.experiments.runs.manifest import judgments_hash, outcome, write_manifest
from rerank.experiments.runs.settings import save_settings
from rerank.experiments.text_task import TextDataset, TextTask, open_text
from rerank.training.device import device_facts, exclusive, kept_torch_settings, open_accelerator, peak_memory
from rerank.training.estimate import say_before
from rerank.training.loop import best_epoch
from rerank.training.objective import train_to_rank
from rerank.training.state import EpochRecord
from rerank.training.tracking import tracked
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, remove, short_hash, write_text
from rerank.utils.integrity import files_below, record_of
from rerank.utils.json_files import read_json
from rerank.utils.locks import locked
from rerank.utils.progress import log
from rerank.utils.texts import counted


@dataclass(frozen=True)
class Experiment:
    """The data set, the folder and the devices of all folds of an experiment."""

    dataset: TextDataset | FeatureDataset
    folder: ExperimentFolder
    accelerator: Accelerator


def open_experiment(config: Config, fold_name: str) -> Experiment:
    """Opens the data set with one fold, "all" or "final", and prepares the experiment's folder.

    Raises UserError for invalid settings, which are checked first, and for input files that are missing or malformed.
    """
    check_training(config)
    accelerator = open_accelerator(config.training)
    open_dataset = open_features if is_feature_source(config.collection.source) else open_text
    with accelerator.main_process_first():
        dataset: TextDataset | FeatureDataset = open_dataset(config, fold_name)
        dataset.write_references()
        folder = dataset.folder.experiment(config.experiment)
        with locked(folder.path, "settings"):
            save_settings(config, folder.settings)
    return Experiment(dataset, folder, accelerator)


@kept_torch_settings()
def train_folds(config: Config, fold: str = "all") -> ExperimentFolder:
    """Trains one fold, or "all", writes its runs, and returns the folder of the experiment.

    A finished fold is not trained again; an interrupted one is resumed. When all folds are finished, their test runs
    are also written as one run. Raises UserError for invalid settings and input files.

    The fold "final" is the model to deploy: it trains on 90 % of the judged queries of the collection and validates on
    10 %.

    The example fine-tunes a model, so the doctests leave it out:

    >>> from rerank.config import CollectionSettings, EncoderSettings
    >>> config = Config(CollectionSettings("my-collection"), encoder=EncoderSettings("bert-base-uncased"))
    >>> folder = train_folds(config)  # doctest: +SKIP
    >>> folder.name  # doctest: +SKIP
    'smoothi'
    """
    experiment = open_experiment(config, fold)
    left = sum(not experiment.folder.fold(one_fold.name).finished for one_fold in experiment.dataset.folds)
    for one_fold in experiment.dataset.folds:
        folder = experiment.folder.fold(one_fold.name)
        with exclusive(experiment.accelerator, folder.path, LOCK):
            if folder.finished:
                if experiment.accelerator.is_main_process:
                    _remove_state(folder)  # a kill after the last file may have left it
                log.info(f"{folder.tag}, fold {one_fold.name}: finished already")
            else:
                train_fold(experiment, one_fold, left)
                left -= 1
    if fold != FINAL and experiment.accelerator.is_main_process:
        write_all_run(experiment.folder, experiment.dataset.fold_names, config)
    experiment.accelerator.wait_for_everyone()
    return experiment.folder


def write_all_run(folder: ExperimentFolder, fold_names: Sequence[str], config: Config) -> None:
    """Writes the test runs of all folds of an experiment as one run, if all of them are finished."""
    folds = [folder.fold(name) for name in fold_names]
    if all(fold.finished for fold in folds):
        write_run(joined_test_runs(folds, config), folder.all_run, folder.name)


def train_fold(experiment: Experiment, fold: Fold, left: int = 1) -> None:
    """Trains one fold; its folder gets the checkpoint, the runs, the log and the manifest.

    First it logs how long this fold and the others that are `left` take.
    """
    start = time.time()
    dataset, accelerator, folder = experiment.dataset, experiment.accelerator, experiment.folder.fold(fold.name)
    config, collection = dataset.config, dataset.folder.path
    log.info(f"training {folder.tag}, fold {fold.name}, with {dataset.model} on {accelerator.device}")
    task = dataset.task(fold, accelerator)
    _expect_same_inputs(folder, task, fold, accelerator.is_main_process)
    name = folder.path.relative_to(collection).as_posix()
    say_before(task, config.loss, accelerator, left)
    with tracked(accelerator, config, collection.name, name, folder.tracking):
        history = train_to_rank(task, config.loss, folder, accelerator)
    accelerator.free_memory()
    task.load(folder.checkpoint)
    run = task.score("test") if fold.test else None
    if accelerator.is_main_process:
        best = best_epoch(history)
        if line := behind_first_stage(best, fold, config.training.measure):
            log.info(line)
        facts = {
            "config": sections(config),
            "fold": asdict(fold),
            "epochs": len(history),
            "best_epoch": best["epoch"],
            "best_valid": best["valid"],
            **({"first_stage_valid": best["first_stage"]} if "first_stage" in best else {}),
            **task.facts(),
            "qrels": {split: judgments_hash(task.qrels(split)) for split in task.judged_splits if getattr(fold, split)},
            **device_facts(accelerator.device),
            "processes": accelerator.num_processes,
            "seconds": round(time.time() - start, 1),
            "peak_memory": peak_memory(accelerator.device),
        }
        _write_results(folder, task, run, facts)
    accelerator.wait_for_everyone()


def _expect_same_inputs(folder: FoldFolder, task: TextTask | FeatureTask, fold: Fold, writes: bool) -> None:
    """Raises UserError if the fold's training began on other inputs; with `writes`, records those of a new training."""
    judged = [(split, judgments_hash(task.qrels(split))) for split in task.judged_splits]
    inputs = {"folds": short_hash(fold), "judgments": short_hash(*judged), **task.inputs()}
    if not folder.state.is_dir():
        if writes:
            write_text(folder.inputs, json.dumps(inputs))
        return
    remedy = f"remove {folder.state} to start again"
    before = read_json(folder.inputs, dict[str, str], remedy)
    if changed := [name for name, value in inputs.items() if before.get(name) != value]:
        raise UserError(
            f"{folder.state}: cannot resume training (it began with other {' and other '.join(changed)}); {remedy}"
        )


def _remove_state(folder: FoldFolder) -> None:
    """Removes what only an unfinished fold needs; its state is three times as large as the model."""
    remove(folder.state)
    remove(folder.inputs)


def behind_first_stage(best: EpochRecord, fold: Fold, measure: str) -> str | None:
    """Advice for a fold whose best epoch is behind the first stage on the validation queries; None for other folds.

    >>> behind_first_stage({"valid": 0.5, "first_stage": 0.4}, Fold("1", (), (), ()), "nDCG@20")
    """
    first = best.get("first_stage")
    if first is None or best["valid"] >= first:
        return None
    return (
        f"fold {fold.name} ends behind its first stage: {measure} {best['valid']:.4f} against {first:.4f} on "
        f"{counted(len(fold.valid), 'validation query')}; add both up with `rerank fuse`, judge more queries than "
        f"these {len(fold.train)} that trained it (a plain encoder needed {ENOUGH:,} on NFCorpus), or let `rerank fit` "
        "choose what answers"
    )


def _write_results(folder: FoldFolder, task: TextTask | FeatureTask, run: Run | None, facts: dict[str, object]) -> None:
    """Writes the model card, the manifest and, last, the test run; a final model has no test run."""
    outcomes = {"valid": outcome(folder.valid_run, task.qrels("valid"))}
    with contextlib.ExitStack() as last:
        if run is not None:
            tmp = last.enter_context(atomic_write(folder.test_run))
            write_run(run, tmp, folder.tag)
            outcomes["test"] = outcome(tmp, task.qrels("test"))
        facts = {**facts, "outcome": outcomes}
        if isinstance(task, TextTask):
            means = {split: found["means"] for split, found in outcomes.items()}
            write_training_card(folder.checkpoint, task.config, task.dataset.collection.name, task.fold, facts, means)
        files = [*files_below(folder.checkpoint), folder.log]
        write_manifest(folder.manifest, {**facts, "files": record_of(folder.path, files)})
    _remove_state(folder)
