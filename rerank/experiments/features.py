"""A fold of feature vectors and the paper's network, as `experiment` trains it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from rerank.batches.features import FeatureList, make_feature_batch
from rerank.batches.sampling import epoch_queries
from rerank.config import Config, validate
from rerank.data.folds import read_folds, write_folds
from rerank.data.letor.layouts import LetorFold, checksums, fold_names, open_fold
from rerank.data.trec import read_qrels, write_qrels
from rerank.errors import UserError
from rerank.evaluation.evaluate import evaluate
from rerank.models.feature_mlp import FeatureMLP, open_feature_mlp, save_feature_mlp
from rerank.models.feature_scoring import run_of, score_features
from rerank.training.gradients import Loss
from rerank.training.task import FoldWork
from rerank.training.validation import mean_loss_of
from rerank.types import Fold, Run
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.locks import locked


@dataclass(frozen=True)
class PreparedFeatures:
    """`folder` is runs/<collection>; `names` are those of all folds, `sets` the opened ones by name.

    `checksums` has the SHA-256 of each file of an opened fold.
    """

    folder: Path
    names: list[str]
    sets: dict[str, LetorFold]
    checksums: dict[str, dict[str, str]]

    @property
    def folds(self) -> list[Fold]:
        """The query ids of the opened folds."""
        return [
            Fold(name, part.train.query_ids, part.valid.query_ids, part.test.query_ids)
            for name, part in self.sets.items()
        ]


def prepare_features(config: Config, fold_name: str) -> PreparedFeatures:
    """Opens the fold of that name, or "all"; parses what was not parsed before.

    Raises UserError for what the user can mend, settings that only text has a meaning for included.
    """
    validate(config)
    source = config.collection.source
    if (config.lists.relevant, config.lists.non_relevant) != ("all", "all"):
        raise UserError(
            f"{source}: feature vectors are trained on whole lists; expected --lists.relevant all and "
            "--lists.non-relevant all, as in configs/mq2008.toml"
        )
    if config.pretraining.steps:
        raise UserError(
            f"--pretraining.steps {config.pretraining.steps}: {source} has no text to pre-train on, expected 0"
        )
    names = fold_names(source, config.collection.folds)
    if fold_name != "all" and fold_name not in names:
        raise UserError(f"fold {fold_name}: no such fold; expected {', '.join(names)} or all")
    folder = Path(config.output.folder) / Path(source).resolve().name.removesuffix(".gz").removesuffix(".txt")
    picked = [name for name in names if fold_name in ("all", name)]
    where = config.collection.folds, folder / "features"
    sets = {name: open_fold(source, name, *where) for name in picked}
    return PreparedFeatures(folder, names, sets, {name: checksums(source, name, *where) for name in picked})


def keep_features_for_evaluation(prepared: PreparedFeatures) -> None:
    """Adds judgments and query ids of the opened folds to what `rerank eval` reads; training queries have no judgments.

    Raises UserError where experiments with another content of these folds lie in the same folder.
    """
    with locked(prepared.folder / "features", "features"):  # folds may be trained side by side
        _keep(prepared)


def _keep(prepared: PreparedFeatures) -> None:
    folder, path = prepared.folder, prepared.folder / "features.json"
    kept: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    here = {
        fold.name: short_hash(sorted(prepared.checksums[fold.name].items()), len(prepared.names), fold)
        for fold in prepared.folds
    }
    if all(kept.get(name) == content for name, content in here.items()):
        return
    if any(kept.get(name, content) != content for name, content in here.items()):
        if any(folder.glob("*/fold*/test.run")):
            raise UserError(
                f"{path}: the experiments here were made with other feature files or folds; take another "
                "--output.folder, or remove this one"
            )
        kept = {}
    folds = {fold.name: fold for fold in (read_folds(folder / "folds.json") if kept else [])}
    qrels = read_qrels(folder / "qrels.txt") if kept else {}
    for fold, part in zip(prepared.folds, prepared.sets.values(), strict=True):
        folds[fold.name] = fold
        qrels |= part.valid.qrels() | part.test.qrels()
    write_qrels(folder / "qrels.txt", qrels)
    write_folds(folder / "folds.json", [folds[name] for name in prepared.names if name in folds])
    with atomic_write(path) as tmp:
        tmp.write_text(json.dumps(kept | here), encoding="utf-8")


def feature_fold(
    config: Config, prepared: PreparedFeatures, loss: Loss, accelerator: Accelerator, fold: Fold
) -> FoldWork:
    """The work of a fold: all queries are trained on, those without a relevant document for batch norm alone.

    Raises UserError where there is nothing to learn from, and for several processes.
    """
    if accelerator.num_processes > 1:
        raise UserError(
            f"{accelerator.num_processes} processes: batch norm would see each one's share of a step alone; "
            "feature vectors are trained by one process"
        )
    table = config.training
    _, train, valid, test = prepared.sets[fold.name]
    if not any((train.labels[begin:end] > 0).any() for begin, end in zip(train.starts, train.stops, strict=True)):
        raise UserError(
            f"fold {fold.name}: none of its {len(fold.train)} training queries has a relevant document: "
            "nothing to learn"
        )
    model = FeatureMLP(train.features.shape[1], config.network.hidden, table.seed).to(accelerator.device)
    judged = valid.qrels()
    latest = torch.zeros(0)

    def validate() -> float:
        nonlocal latest
        latest = score_features(model, valid, accelerator)
        if table.measure == "loss":
            return -mean_loss_of(valid, latest, loss)
        (values,) = evaluate(judged, run_of(judged, latest), [table.measure]).values()
        return sum(values.values()) / len(values)

    def test_run(checkpoint: Path) -> Run:
        best = open_feature_mlp(checkpoint).to(accelerator.device)
        return run_of(test.qrels(), score_features(best, test, accelerator))

    def facts() -> dict[str, Any]:
        return {
            "features": {"width": model.features, "files": prepared.checksums[fold.name]},
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
        }

    return FoldWork(
        model,
        [{"params": list(model.parameters()), "lr": table.lr}],
        lambda epoch: [
            FeatureList(train, query, (table.seed, 1, place))
            for place, query in epoch_queries(len(fold.train), epoch, table.lists_per_epoch, table.seed)
        ],
        make_feature_batch,
        validate,
        lambda: run_of(judged, latest),
        lambda folder: save_feature_mlp(model, folder),
        test_run,
        dict,
        facts,
        lambda: {"valid": judged, "test": test.qrels()},
        None,
    )
