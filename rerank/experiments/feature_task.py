"""Feature vectors: FeatureDataset, a learning-to-rank data set; FeatureTask, one of its folds and the network."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from accelerate import Accelerator
from torch import Tensor

from rerank.batches.batch import Batch
from rerank.batches.features import FeatureList, make_feature_batch
from rerank.batches.sampling import epoch_queries
from rerank.config import Config, validate
from rerank.data.folds import final_fold, fold_seed, read_folds, write_folds
from rerank.data.letor.layouts import fold_names, name_of, open_fold
from rerank.data.letor.store import FeatureSet, Store
from rerank.data.runs import read_qrels
from rerank.data.trec import write_qrels
from rerank.data.types import FINAL, Fold, Qrels, Run
from rerank.experiments.grades import check_labels
from rerank.experiments.runs.layout import CollectionFolder
from rerank.losses.shifts import changes_with_a_shift
from rerank.models.feature_mlp import FeatureMLP, open_feature_mlp, save_feature_mlp, score_features
from rerank.training.device import precision_facts
from rerank.training.objective import open_loss
from rerank.training.task import Split
from rerank.utils.errors import UserError
from rerank.utils.files import short_hash, write_text
from rerank.utils.json_files import read_json
from rerank.utils.locks import locked


@dataclass(frozen=True)
class FeatureDataset:
    """The open folds of a data set and their stores (`sets`), by name; `fold_names` are those of all folds."""

    config: Config
    folder: CollectionFolder
    fold_names: list[str]
    sets: dict[str, tuple[Fold, Store]]

    @property
    def folds(self) -> list[Fold]:
        return [fold for fold, _ in self.sets.values()]

    @property
    def model(self) -> str:
        network = self.config.network
        transform = f", transform {network.transform}" if network.transform != "none" else ""
        dropout = f", dropout {network.dropout:g}" if network.dropout else ""
        return f"a network of {network.hidden} hidden units{transform}{dropout}"

    def write_references(self) -> None:
        """Writes the judgments and the open folds for evaluation.

        The judgments of a final model are those of all queries. Raises UserError if the folder has experiments with
        other feature files or folds.
        """
        folder, path = self.folder, self.folder.feature_hashes
        remedy = "take another --output.folder, or remove this one"
        hashes = {}
        for name, (fold, store) in self.sets.items():
            drawn = [] if name == FINAL else [fold]  # the queries of a final model depend on the seed
            hashes[name] = short_hash(sorted(store.checksums.items()), len(self.fold_names), *drawn)
        with locked(folder.features, "features"):  # folds may be trained in parallel
            saved: dict[str, str] = read_json(path, dict[str, str], remedy) if path.exists() else {}
            if hashes.items() <= saved.items():
                return
            if any(saved.get(name, content) != content for name, content in hashes.items()):
                if folder.has_results:
                    raise UserError(
                        f"{path}: the experiments in this folder were made with other feature files or folds; {remedy}"
                    )
                saved = {}
            folds = {fold.name: fold for fold in (read_folds(folder.folds) if saved.keys() - {FINAL} else [])}
            qrels = read_qrels(folder.qrels) if saved else {}
            for name, (fold, store) in self.sets.items():
                folds[name] = fold
                measured = fold.train + fold.valid if name == FINAL else fold.valid + fold.test
                qrels |= store.features.subset(measured).qrels()
            write_qrels(qrels, folder.qrels)
            if known := [folds[name] for name in self.fold_names if name in folds]:
                write_folds(folder.folds, known)
            write_text(path, json.dumps(saved | hashes))

    def task(self, fold: Fold, accelerator: Accelerator) -> "FeatureTask":
        return FeatureTask(self, fold, accelerator)


def open_features(config: Config, fold_name: str) -> FeatureDataset:
    """Opens one fold, "all", or "final", the fold of all queries; feature files are parsed once.

    Raises UserError for a fold that does not exist, and, with file and line, for malformed files.
    """
    validate(config)
    source, folds = config.collection.source, config.collection.folds
    if (config.lists.relevant, config.lists.non_relevant) != ("all", "all"):
        raise UserError(
            f"{source}: feature vectors are trained on whole lists; expected --lists.relevant all and "
            "--lists.non-relevant all, as in configs/mq2008.toml"
        )
    names = fold_names(source, folds)
    if fold_name not in (*names, "all", FINAL):
        raise UserError(f"fold {fold_name}: no such fold; expected {', '.join(names)}, all or {FINAL}")
    folder = CollectionFolder(Path(config.output.folder) / name_of(source))
    opened = [name for name in names if fold_name in ("all", name)]
    sets = {name: open_fold(source, name, folds, folder.features) for name in opened}
    if fold_name == FINAL:  # every fold has all queries
        _, store = open_fold(source, names[0], folds, folder.features)
        sets = {FINAL: (final_fold(store.features.query_ids, config.training.seed), store)}
    for name, (_, store) in sets.items():
        check_labels(config.loss, source, names[0] if name == FINAL else name, store.features)
    return FeatureDataset(config, folder, names, sets)


class FeatureTask:
    """A fold of feature vectors and the paper's network: see `rerank.training.task.Task`.

    All training queries are used; queries without a relevant document matter only for batch norm. `training` has the
    seed of the fold. Raises UserError if no training query has a relevant document, and for several processes.
    """

    judged_splits: ClassVar[tuple[Split, ...]] = ("valid", "test")
    memory: ClassVar[None] = None  # a step is not cut: with batch norm, scores depend on all its documents
    first_stage: ClassVar[Run] = {}

    def __init__(self, dataset: FeatureDataset, fold: Fold, accelerator: Accelerator) -> None:
        if accelerator.num_processes > 1:
            raise UserError(
                f"{accelerator.num_processes} processes: batch norm needs all documents of a step; feature vectors are "
                "trained by one process"
            )
        self.dataset, self.fold, self.accelerator = dataset, fold, accelerator
        training = dataset.config.training
        self.training = replace(training, seed=fold_seed(training.seed, fold.name))
        features = dataset.sets[fold.name][1].features
        train, valid, test = (features.subset(queries) for queries in (fold.train, fold.valid, fold.test))
        if not any((train.labels[begin:end] > 0).any() for begin, end in zip(train.starts, train.stops, strict=True)):
            raise UserError(
                f"fold {fold.name}: none of its {len(fold.train)} training queries has a relevant document: "
                "nothing to learn"
            )
        self.sets: dict[Split, FeatureSet] = {"train": train, "valid": valid, "test": test}
        network, width = dataset.config.network, train.features.shape[1]
        seed, first = self.training.seed, train.first_feature
        model = FeatureMLP(width, network.hidden, seed, network.transform, network.dropout, first)
        if not changes_with_a_shift(open_loss(dataset.config.loss)):  # the gradient of a shift would be rounding error
            model.output.bias.requires_grad_(False)
            model.hidden_norm.bias.requires_grad_(False)
        self.model = model.to(accelerator.device)
        self._qrels = {split: self.sets[split].qrels() for split in self.judged_splits}

    def parameter_groups(self) -> list[dict[str, object]]:
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        return [{"params": trained, "lr": self.training.lr}]

    def training_lists(self, epoch: int) -> Sequence[FeatureList]:
        settings = self.training
        return [
            FeatureList(self.sets["train"], query, (settings.seed, 1, position))
            for position, query in epoch_queries(len(self.fold.train), epoch, settings.lists_per_epoch, settings.seed)
        ]

    def batch(self, lists: Sequence[FeatureList]) -> Batch[Tensor]:
        return make_feature_batch(lists)

    def documents(self, split: Split) -> int:
        return len(self.sets[split].labels)

    def score(self, split: Split) -> Run:
        return score_features(self.model, self.sets[split], self.qrels(split), self.accelerator)

    def qrels(self, split: Split) -> Qrels:
        return self._qrels[split]

    def save(self, folder: Path) -> None:
        save_feature_mlp(self.model, folder)

    def load(self, checkpoint: Path) -> None:
        self.model = open_feature_mlp(checkpoint).to(self.accelerator.device)

    def inputs(self) -> dict[str, str]:
        """The hash of what training reads, by name."""
        return {"feature files": short_hash(*sorted(self.dataset.sets[self.fold.name][1].checksums.items()))}

    def facts(self) -> dict[str, object]:
        return {
            "features": {"width": self.model.features, "files": self.dataset.sets[self.fold.name][1].checksums},
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            **precision_facts(self.accelerator, self.model),
        }
