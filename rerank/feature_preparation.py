"""A feature set -> its folds, memory-mapped, and what `rerank eval` needs of them; there is no first stage."""

import json
from dataclasses import dataclass
from pathlib import Path

from rerank.config import Config
from rerank.errors import UserError
from rerank.feature_scoring import judgments
from rerank.files import replacing, short_hash
from rerank.folds import read_folds, write_folds
from rerank.letor.source import LetorFold, checksums, fold_names, open_fold
from rerank.locks import locked
from rerank.settings import check
from rerank.trec import read_qrels, write_qrels
from rerank.types import Fold


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
    check(config)
    source = config.collection.source
    if (config.lists.relevant, config.lists.non_relevant) != ("all", "all"):
        raise UserError(
            f"{source}: feature vectors are trained on whole lists; expected --lists.relevant all and "
            "--lists.non-relevant all, as in configs/mq2008.toml"
        )
    if config.warmup.steps:
        raise UserError(f"--warmup.steps {config.warmup.steps}: {source} has no text to warm up on; expected 0")
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
        qrels |= judgments(part.valid) | judgments(part.test)
    write_qrels(folder / "qrels.txt", qrels)
    write_folds(folder / "folds.json", [folds[name] for name in prepared.names if name in folds])
    with replacing(path) as aside:
        aside.write_text(json.dumps(kept | here), encoding="utf-8")
