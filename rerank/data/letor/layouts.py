"""The folds of feature-based data sets: a file, a folder of folds, or training, validation and test files."""

import random
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rerank.data.folds import make_folds, select_folds
from rerank.data.letor.feature_set import FeatureSet, join
from rerank.data.letor.layout_files import (
    PARTS,
    fold_folders,
    has_features,
    has_layout,
    part_file,
    part_files,
    stray_files,
    wrong_layout,
)
from rerank.data.letor.store import Store, build_store, open_store
from rerank.data.letor.store_writer import FeatureZeroError, side_file
from rerank.utils.errors import UserError
from rerank.utils.locks import locked
from rerank.utils.progress import log

VALIDATION_SHARE, SEED = 0.1, 0
"""The part of the training queries that validates where there is no validation file, and the seed that draws them."""


class LetorFold(NamedTuple):
    """The queries that train, validate and test one model; the three sets are of one width, and share no query.

    name: "1", "2", …; a data set without folds is fold "1".
    """

    name: str
    train: FeatureSet
    valid: FeatureSet
    test: FeatureSet


def is_feature_source(source: str) -> bool:
    """Whether `source` is a file of SVMlight lines, or a folder with feature files.

    Their layout may be unknown: `fold_names` then says which ones there are.
    """
    path = Path(source)
    if path.is_file():
        return has_features(path)
    return has_layout(path) or any(stray_files(path))


def fold_names(source: str, folds: int) -> list[str]:
    """The names of the folds: those of the data set, or "1" to `folds` for a single file.

    Raises UserError if `source` is not a feature source, and for a folder in no known layout.
    """
    path = Path(source)
    if path.is_file():
        return [str(i + 1) for i in range(folds)]
    if not has_layout(path):
        raise wrong_layout(source)
    return list(fold_folders(path)) or ["1"]


def open_fold(source: str, name: str, folds: int, cache: Path) -> LetorFold:
    """A fold of the data set, parsed into `cache` once; a single file is split into `folds` by query.

    If no fold has a validation file, a tenth of the training queries validates. Raises UserError with file and line for
    malformed files, for files without a document, and for a query that is in more than one of them.
    """
    with locked(cache, "features"):
        stores = _stores(source, name, folds, cache)
        width = max(store.facts["width"] for store in stores.values())
        sets = {part: open_store(store, width) for part, store in stores.items()}
    if "all" in stores:
        everything = sets["all"]
        (fold,) = select_folds(make_folds(everything.query_ids, folds), name)
        return LetorFold(name, *(everything.subset(part) for part in (fold.train, fold.valid, fold.test)))
    parts = {part: _rename_queries(features, part, stores[part].path) for part, features in sets.items()}
    part_of: dict[str, str] = {}
    for part, features in parts.items():
        for query_id in features.query_ids:
            if query_id in part_of:
                both = f"{stores[part_of[query_id]].path} and {stores[part].path}"
                raise UserError(f"{both}: expected no query in both, got query {query_id}")
            part_of[query_id] = part
    if "valid" not in parts:
        parts |= _draw_validation(parts["train"], stores["train"].path)
    return LetorFold(name, **parts)


def open_all(source: str, folds: int, cache: Path) -> FeatureSet:
    """All queries of the data set: of its one file, or of the three files of its first fold, copied into memory."""
    path = Path(source)
    if path.is_file():
        with locked(cache, "features"):
            store = build_store(path, cache)
            return open_store(store, store.facts["width"])
    _, *parts = open_fold(source, fold_names(source, folds)[0], folds, cache)
    return join(parts)


def checksums(source: str, name: str, folds: int, cache: Path) -> dict[str, str]:
    """SHA-256 of each file of a fold, by name, for manifests; taken from the stores."""
    with locked(cache, "features"):
        stores = _stores(source, name, folds, cache).values()
    return {file: checksum for store in stores for file, checksum in store.facts["checksums"].items()}


def _stores(source: str, name: str, folds: int, cache: Path) -> dict[str, Store]:
    path = Path(source)
    if name not in fold_names(source, folds):
        raise UserError(f"fold {name}: no such fold in {source}; expected {', '.join(fold_names(source, folds))}")
    files = {"all": path} if path.is_file() else _part_files(path, name)
    try:
        return {part: build_store(file, cache) for part, file in files.items()}
    except FeatureZeroError:  # in one file, so all of them begin there
        return {part: build_store(file, cache, first=0) for part, file in files.items()}


def _part_files(path: Path, name: str) -> dict[str, Path]:
    """The files of a fold, without one for validation where no fold has it."""
    folders = fold_folders(path) or {name: path}
    parts = [part for part in PARTS if part != "valid" or any(part_files(folder, part) for folder in folders.values())]
    return {part: part_file(folders[name], part) for part in parts}


def _rename_queries(features: FeatureSet, part: str, path: Path) -> FeatureSet:
    """Adds the file to the ids of queries that are only numbered, so that no two files have the same id."""
    if not side_file(path).is_file():
        return features
    return replace(features, query_ids=tuple(f"{part}-{query_id}" for query_id in features.query_ids))


def _draw_validation(train: FeatureSet, path: Path) -> dict[str, FeatureSet]:
    """The training and validation set without a validation file; the draw does not depend on the order of the file."""
    queries = train.query_ids
    if len(queries) < 2:
        raise UserError(f"{path}: expected 2 queries or more, as there is no validation file, got {len(queries)}")
    count = max(1, round(VALIDATION_SHARE * len(queries)))
    drawn = set(random.Random(SEED).sample(sorted(queries), count))
    log.info(
        f"{path}: no validation file beside it; {count} of its {len(queries)} queries validate, drawn by seed {SEED}"
    )
    return {
        "train": train.subset([query_id for query_id in queries if query_id not in drawn]),
        "valid": train.subset([query_id for query_id in queries if query_id in drawn]),
    }
