"""The folds of feature-based data sets: a file, a folder of folds, or training, validation and test files."""

from pathlib import Path
from typing import NamedTuple

from rerank.data.folds import make_folds, select_folds
from rerank.data.letor.feature_set import FeatureSet
from rerank.data.letor.layout_files import (
    EXPECTED,
    PARTS,
    fold_folders,
    has_features,
    has_layout,
    part_file,
    part_files,
)
from rerank.data.letor.store import Store, open_store
from rerank.data.splits import hold_out
from rerank.data.types import Fold
from rerank.utils.errors import UserError
from rerank.utils.progress import log


class LetorFold(NamedTuple):
    """The queries that train, validate and test one model, and the SHA-256 of each file by name.

    The three sets are of one width and share no query. `fold` has their query ids; its name is "1", "2", …, and "1" for
    a data set without folds.
    """

    fold: Fold
    train: FeatureSet
    valid: FeatureSet
    test: FeatureSet
    checksums: dict[str, str]


def is_feature_source(source: str) -> bool:
    """Whether `source` is a file of SVMlight lines, or a folder with feature files in a known layout."""
    path = Path(source)
    return has_features(path) if path.is_file() else has_layout(path)


def fold_names(source: str, folds: int) -> list[str]:
    """The names of the folds: those of the data set, or "1" to `folds` for a single file.

    Raises UserError if `source` is not a feature source, and for a folder in no known layout.
    """
    path = Path(source)
    if path.is_file():
        return [str(i + 1) for i in range(folds)]
    if not has_layout(path):
        raise UserError(f"{source}: no feature files; {EXPECTED}")
    return list(fold_folders(path)) or ["1"]


def open_fold(source: str, name: str, folds: int, cache: Path) -> LetorFold:
    """A fold of the data set, parsed into `cache` once; a single file is split into `folds` by query.

    If no fold has a validation file, a tenth of the training queries validates. Raises UserError with file and line for
    malformed files, for files without a document, and for a query that is in more than one of them.
    """
    if name not in (names := fold_names(source, folds)):
        raise UserError(f"fold {name}: no such fold in {source}; expected {', '.join(names)}")
    store, path = _open(source, name, cache), Path(source)
    if path.is_file():
        (fold,) = select_folds(make_folds(store.features.query_ids, folds), name)
    else:
        ids = dict(store.query_ids)
        if "valid" not in ids:
            ids["train"], ids["valid"] = _draw_validation(source, name, ids["train"])
        fold = Fold(name, ids["train"], ids["valid"], ids["test"])
    train, valid, test = (store.features.subset(part) for part in (fold.train, fold.valid, fold.test))
    return LetorFold(fold, train, valid, test, store.checksums)


def open_all(source: str, cache: Path) -> Store:
    """All queries of the data set: of its one file, or of the files of its first fold."""
    return _open(source, fold_names(source, 1)[0], cache)


def _open(source: str, name: str, cache: Path) -> Store:
    path = Path(source)
    if path.is_file():
        return open_store({"all": path}, cache)
    folders = fold_folders(path) or {name: path}
    parts = [part for part in PARTS if part != "valid" or any(part_files(folder, part) for folder in folders.values())]
    return open_store({part: part_file(folders[name], part) for part in parts}, cache)


def _draw_validation(source: str, name: str, query_ids: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The training and validation queries of a training file without a validation file beside it."""
    what = f"{source}, fold {name}: no validation file"
    try:
        train, valid = hold_out(query_ids)
    except UserError as error:
        raise UserError(f"{what}; {error}") from error
    log.info(f"{what}; {len(valid)} of its {len(query_ids)} training queries, drawn at random, validate")
    return train, valid
