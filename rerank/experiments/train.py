"""The composition: a prepared collection -> folds × (train, score) -> runs/<collection>/<experiment>."""

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from accelerate import Accelerator

from rerank.config import Config, sections
from rerank.data.folds import select_folds
from rerank.data.letor.layouts import is_feature_source
from rerank.data.trec import read_run, write_run
from rerank.evaluation.measures import measure_names
from rerank.experiments.features import feature_fold, keep_features_for_evaluation, prepare_features
from rerank.experiments.pretraining.pretrain import pretrain
from rerank.experiments.text import keep_for_evaluation, prepare, text_fold
from rerank.runs.manifest import judgments_hash, outcome, write_manifest
from rerank.runs.settings import save_settings
from rerank.training.device import device_name, exclusive, open_accelerator, peak_memory
from rerank.training.gradients import Loss
from rerank.training.loop import train
from rerank.training.losses import open_loss
from rerank.training.task import FoldWork
from rerank.types import Fold, Run
from rerank.utils.files import atomic_write
from rerank.utils.progress import log


@dataclass(frozen=True)
class Experiment:
    """What every fold works with.

    `folder` is runs/<collection>/<name>; `model` says what is trained; `folds` are those to train, `names` those of
    all; `work_of` makes the parts that a fold is trained with.
    """

    config: Config
    folder: Path
    model: str
    folds: list[Fold]
    names: list[str]
    loss: Loss
    accelerator: Accelerator
    work_of: Callable[[Fold], FoldWork]

    def say(self, line: str) -> None:
        """Prints a line once, whatever the number of processes."""
        if self.accelerator.is_main_process:
            log.info(line)

    def fold_folder(self, name: str) -> Path:
        """Where the results of a fold are."""
        return self.folder / f"fold{name}"


def open_experiment(config: Config, fold_name: str) -> Experiment:
    """Prepares the collection and the folder of an experiment with the fold of that name, or "all".

    A collection of texts and a set of feature vectors differ here and in what this chooses for them, and nowhere else.
    Raises UserError for what the user can mend.
    """
    loss = open_loss(config.loss)
    if config.training.measure != "loss":
        measure_names([config.training.measure])
    accelerator = open_accelerator(config.training.precision)
    name = config.output.name or config.loss.name
    if is_feature_source(config.collection.source):
        with accelerator.main_process_first():
            features = prepare_features(config, fold_name)
            keep_features_for_evaluation(features)
            save_settings(config, features.folder / name / "config.toml")
        model = f"a network of {config.network.hidden} hidden units"
        work_of = partial(feature_fold, config, features, loss, accelerator)
        return Experiment(
            config, features.folder / name, model, features.folds, features.names, loss, accelerator, work_of
        )
    with accelerator.main_process_first():
        prepared = prepare(config)
        keep_for_evaluation(prepared)
        save_settings(config, prepared.folder / name / "config.toml")
    encoder = str(pretrain(config, accelerator)) if config.pretraining.steps else config.encoder.name
    folds, names = select_folds(prepared.folds, fold_name), [fold.name for fold in prepared.folds]
    work_of = partial(text_fold, config, prepared, encoder, loss, accelerator)
    return Experiment(config, prepared.folder / name, encoder, folds, names, loss, accelerator, work_of)


def train_folds(config: Config, fold_name: str) -> Path:
    """Trains the fold of that name, or "all", writes the runs, and returns the experiment's folder.

    A fold that has its test run is not trained again; when every fold has one, `all.run` holds them all.
    """
    experiment = open_experiment(config, fold_name)
    for fold in experiment.folds:
        folder = experiment.fold_folder(fold.name)
        with exclusive(experiment.accelerator, folder, "fold"):
            if (folder / "test.run").exists():
                experiment.say(f"fold {fold.name}: {folder / 'test.run'} is there already")
            else:
                train_fold(experiment, fold)
    runs = [experiment.fold_folder(name) / "test.run" for name in experiment.names]
    if experiment.accelerator.is_main_process and all(path.exists() for path in runs):
        everything: Run = {}
        for path in runs:
            everything |= read_run(path)
        write_run(experiment.folder / "all.run", everything, experiment.folder.name)
    experiment.accelerator.wait_for_everyone()
    return experiment.folder


def train_fold(experiment: Experiment, fold: Fold) -> None:
    """Trains one fold; its folder gets the checkpoint, the runs, test.passages.json, the log and the manifest."""
    begun = time.time()
    config, accelerator = experiment.config, experiment.accelerator
    table, folder, tag = config.training, experiment.fold_folder(fold.name), experiment.folder.name
    experiment.say(f"fold {fold.name}: {tag} with {experiment.model} on {accelerator.device}")
    work = experiment.work_of(fold)

    def keep_best() -> None:
        with atomic_write(folder / "checkpoint") as tmp:
            work.save(tmp)
        write_run(folder / "valid.run", work.valid_run(), tag)

    history = train(
        work.model,
        work.parameter_groups,
        work.epoch_lists,
        work.batch_of,
        experiment.loss,
        work.validate,
        keep_best,
        accelerator,
        work.budget,
        folder,
        epochs=table.epochs,
        lists_per_step=table.lists_per_step,
        clip=table.clip,
        patience=table.patience,
        seed=table.seed,
    )
    accelerator.free_memory()
    run = work.test_run(folder / "checkpoint")
    if accelerator.is_main_process:
        judged, best = work.judgments(), max(history, key=lambda record: record["valid"])
        facts = {
            "config": sections(config),
            "fold": asdict(fold),
            "epochs": len(history),
            "best_epoch": best["epoch"],
            "best_valid": best["valid"],
            **work.facts(),
            "qrels": {part: judgments_hash(qrels) for part, qrels in judged.items()},
            "device": str(accelerator.device),
            "device_name": device_name(accelerator.device),
            "precision": accelerator.mixed_precision,
            "processes": accelerator.num_processes,
            "seconds": round(time.time() - begun, 1),
            "peak_memory": peak_memory(accelerator.device),
        }
        if passages := work.passages():
            with atomic_write(folder / "test.passages.json") as tmp:
                tmp.write_text(json.dumps(passages, separators=(",", ":")), encoding="utf-8")
        with atomic_write(folder / "test.run") as tmp:  # in its place last: where it is, the fold is finished
            write_run(tmp, run, tag)
            runs = {"valid": folder / "valid.run", "test": tmp}
            facts["outcome"] = {part: outcome(file, judged[part]) for part, file in runs.items()}
            write_manifest(folder / "manifest.json", facts)
        shutil.rmtree(folder / "state")  # only an unfinished fold needs it, and it is three times the model
    accelerator.wait_for_everyone()
