"""The composition: a prepared collection -> folds × (train, score) -> runs/<collection>/<experiment>."""

import shutil
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from accelerate import Accelerator

from rerank.batches.batch import make_batch
from rerank.batches.sampling import epoch_lists
from rerank.budget import open_budget
from rerank.candidates import without_relevant
from rerank.config import Config
from rerank.errors import UserError
from rerank.evaluation import evaluate
from rerank.files import replacing
from rerank.folds import pick
from rerank.gradients import Loss
from rerank.manifest import file_hash, write_manifest
from rerank.measures import measure_names
from rerank.models.cross_encoder import open_cross_encoder, save_cross_encoder, warmup_of
from rerank.parts import make_loss, open_accelerator, open_model, text_inputs, what_was_cut
from rerank.preparation import Prepared, keep_for_evaluation, prepare
from rerank.progress import say
from rerank.scoring import score
from rerank.settings import keep
from rerank.training import train
from rerank.trec import read_run, write_run
from rerank.types import Candidates, Fold, Run
from rerank.warmup.warm import warm_up


@dataclass(frozen=True)
class Experiment:
    """What every fold works with; `folder` is runs/<collection>/<name>, `encoder` the name or folder to start from."""

    config: Config
    prepared: Prepared
    folder: Path
    encoder: str
    loss: Loss
    accelerator: Accelerator

    def say(self, line: str) -> None:
        """Prints a line once, whatever the number of processes."""
        if self.accelerator.is_main_process:
            say(line)

    def of(self, query_ids: Iterable[str]) -> list[Candidates]:
        """The candidates of those queries that the first stage found something for."""
        return [found for query_id in query_ids if (found := self.prepared.candidates[query_id]).doc_ids]


def open_experiment(config: Config) -> Experiment:
    """Prepares the collection and the folder of an experiment; raises UserError for what the user can mend."""
    loss = make_loss(config)
    measure_names([config.training.measure])
    accelerator = open_accelerator(config)
    with accelerator.main_process_first():
        prepared = prepare(config)
        keep_for_evaluation(prepared)
        folder = prepared.folder / (config.output.name or config.loss.name)
        keep(config, folder / "config.toml")
    encoder = str(warm_up(config, accelerator)) if config.warmup.steps else config.encoder.name
    return Experiment(config, prepared, folder, encoder, loss, accelerator)


def train_folds(config: Config, fold_name: str) -> Path:
    """Trains the fold of that name, or "all", writes the runs, and returns the experiment's folder.

    A fold that has its test run is not trained again; when every fold has one, `all.run` holds them all.
    """
    experiment = open_experiment(config)
    for fold in pick(experiment.prepared.folds, fold_name):
        test_run = _fold_folder(experiment, fold) / "test.run"
        if test_run.exists():
            experiment.say(f"fold {fold.name}: {test_run} is there already")
        else:
            train_fold(experiment, fold)
    runs = [_fold_folder(experiment, fold) / "test.run" for fold in experiment.prepared.folds]
    if experiment.accelerator.is_main_process and all(path.exists() for path in runs):
        everything: Run = {}
        for path in runs:
            everything |= read_run(path)
        write_run(experiment.folder / "all.run", everything, experiment.folder.name)
    experiment.accelerator.wait_for_everyone()
    return experiment.folder


def train_fold(experiment: Experiment, fold: Fold) -> None:
    """Trains one fold; its folder gets checkpoint/, valid.run, test.run, log.jsonl and manifest.json."""
    begun = time.time()
    config, accelerator = experiment.config, experiment.accelerator
    table, folder, tag = config.training, _fold_folder(experiment, fold), experiment.folder.name
    experiment.say(f"fold {fold.name}: {tag} with {experiment.encoder} on {accelerator.device}")
    model, tokenizer, max_length = open_model(config, experiment.encoder, accelerator)
    with accelerator.main_process_first():
        inputs_of = text_inputs(config, experiment.prepared, tokenizer, max_length)
    experiment.say(what_was_cut(inputs_of, config.encoder.max_doc_tokens))
    budget = open_budget(table.tokens_per_forward, accelerator.device)
    valid, test, latest = experiment.of(fold.valid), experiment.of(fold.test), Run()
    for part, found in (("validation", valid), ("test", test)):
        if not any(candidates.query_id in experiment.prepared.qrels for candidates in found):
            raise UserError(
                f"fold {fold.name}: none of its {part} queries is judged and has a candidate: nothing to measure"
            )

    def validate() -> float:
        latest.clear()
        latest.update(score(model, inputs_of, valid, accelerator, budget, "validating"))
        qrels = {q: experiment.prepared.qrels[q] for q in fold.valid if q in experiment.prepared.qrels}
        (values,) = evaluate(qrels, latest, [table.measure]).values()
        return sum(values.values()) / len(values)

    def keep_best() -> None:
        with replacing(folder / "checkpoint") as aside:
            save_cross_encoder(model, tokenizer, aside, config.encoder.max_doc_tokens)
        write_run(folder / "valid.run", latest, tag)

    trainable = _trainable(experiment, fold)
    history = train(
        model,
        model.parameter_groups(table.lr, table.head_lr),
        lambda epoch: epoch_lists(
            trainable, epoch, table.lists_per_epoch, config.lists.relevant, config.lists.non_relevant, table.seed
        ),
        partial(make_batch, inputs_of=inputs_of),
        experiment.loss,
        validate,
        keep_best,
        accelerator,
        budget,
        folder,
        epochs=table.epochs,
        lists_per_step=table.lists_per_step,
        clip=table.clip,
        patience=table.patience,
        seed=table.seed,
    )
    accelerator.free_memory()
    best, _, _ = open_cross_encoder(str(folder / "checkpoint"), config.encoder.pooling, table.seed)
    best.to(accelerator.device)
    run = score(best, inputs_of, test, accelerator, budget, "testing")
    if accelerator.is_main_process:
        facts = {
            "config": asdict(config),
            "fold": asdict(fold),
            "epochs": len(history),
            "warmup": warmup_of(model),
            "best_epoch": max(history, key=lambda record: record["valid"])["epoch"],
            "texts": {**inputs_of.documents.statistics(), "queries_cut": inputs_of.queries_cut()},
            "first_stage": {"run": str(experiment.prepared.run), "sha256": file_hash(experiment.prepared.run)},
            "device": str(accelerator.device),
            "precision": accelerator.mixed_precision,
            "tokens_per_forward": budget.tokens,
            "passages": f"padded: {model.why_padded}" if model.why_padded else "packed",
            "attention_dropout": model.attention_dropout(),
            "processes": accelerator.num_processes,
            "seconds": round(time.time() - begun, 1),
        }
        write_manifest(folder / "manifest.json", facts)
        write_run(folder / "test.run", run, tag)
        shutil.rmtree(folder / "state")  # only an unfinished fold needs it, and it is three times the model
    accelerator.wait_for_everyone()


def _trainable(experiment: Experiment, fold: Fold) -> list[Candidates]:
    found = {query_id: experiment.prepared.candidates[query_id] for query_id in fold.train}
    skipped = set(without_relevant(found))
    if skipped:
        experiment.say(
            f"fold {fold.name}: {len(skipped)} of {len(found)} training queries have no relevant candidate: skipped"
        )
    if len(skipped) == len(found):
        raise UserError(
            f"fold {fold.name}: none of its {len(found)} training queries has a relevant candidate: nothing to learn"
        )
    return [candidates for query_id, candidates in found.items() if query_id not in skipped]


def _fold_folder(experiment: Experiment, fold: Fold) -> Path:
    return experiment.folder / f"fold{fold.name}"
