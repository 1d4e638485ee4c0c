"""Where feature-based data sets lie: a file, a folder of folds, or one with training, validation and test files."""

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rerank.data.folds import make_folds, select_folds
from rerank.data.letor.feature_set import FeatureSet
from rerank.data.letor.store import Stored, load, stored
from rerank.data.letor.store_writer import side_file
from rerank.errors import UserError
from rerank.utils.locks import locked

PARTS = {"train": ("train",), "valid": ("vali", "valid"), "test": ("test",)}
LAYOUTS = "a file, or a folder with Fold*/{train,vali,test}.txt, {train,vali,test}.txt or set1.{train,valid,test}.txt"


class LetorFold(NamedTuple):
    """The queries that train, validate and test one model; the three sets are of one width, and share no query.

    name: "1", "2", …; a data set that has no folds but training, validation and test files is fold "1".
    """

    name: str
    train: FeatureSet
    valid: FeatureSet
    test: FeatureSet


def is_feature_source(source: str) -> bool:
    """Whether `source` is a file, or a folder with training files where the known data sets have them."""
    path = Path(source)
    return path.is_file() or bool(_fold_folders(path)) or bool(_candidates(path, "train"))


def fold_names(source: str, folds: int) -> list[str]:
    """The names of the folds: those that the data set has, or "1" to `folds` for a single file.

    Raises UserError for what is no feature source.
    """
    path = Path(source)
    if path.is_file():
        return [str(i + 1) for i in range(folds)]
    if _fold_folders(path):
        return list(_fold_folders(path))
    if _candidates(path, "train"):
        return ["1"]
    raise UserError(f"{source}: no feature files; expected {LAYOUTS}, .gz or not")


def open_fold(source: str, name: str, folds: int, cache: Path) -> LetorFold:
    """A fold of the data set, read into `cache` unless it is there; a single file is cut into `folds` by query.

    Raises UserError with file and line for what is wrong in a file, for files that lack a document, and for a query in
    more than one of them.
    """
    with locked(cache, "features"):
        stores = _stores(source, name, folds, cache)
        width = max(store.facts["width"] for store in stores.values())
        loaded = {part: load(store, width) for part, store in stores.items()}
    if "all" in stores:
        everything = loaded["all"]
        (fold,) = select_folds(make_folds(everything.query_ids, folds), name)
        return LetorFold(name, *(everything.of(part) for part in (fold.train, fold.valid, fold.test)))
    parts = {part: _named(features, part, stores[part].path) for part, features in loaded.items()}
    part_of: dict[str, str] = {}
    for part, features in parts.items():
        for query_id in features.query_ids:
            if query_id in part_of:
                both = f"{stores[part_of[query_id]].path} and {stores[part].path}"
                raise UserError(f"{both}: expected no query in both, got query {query_id}")
            part_of[query_id] = part
    return LetorFold(name, **parts)


def checksums(source: str, name: str, folds: int, cache: Path) -> dict[str, str]:
    """SHA-256 of each file of a fold, by name, for manifests; known from the store where that is made."""
    with locked(cache, "features"):
        stores = _stores(source, name, folds, cache).values()
    return {file: checksum for store in stores for file, checksum in store.facts["checksums"].items()}


def _stores(source: str, name: str, folds: int, cache: Path) -> dict[str, Stored]:
    path = Path(source)
    if name not in fold_names(source, folds):
        raise UserError(f"fold {name}: no such fold in {source}; expected {', '.join(fold_names(source, folds))}")
    if path.is_file():
        return {"all": stored(path, cache)}
    folder = _fold_folders(path).get(name, path)
    return {part: stored(_file(folder, part), cache) for part in PARTS}


def _named(features: FeatureSet, part: str, path: Path) -> FeatureSet:
    """Queries that only their number names are told apart from those of the other files."""
    if not side_file(path).is_file():
        return features
    return replace(features, query_ids=tuple(f"{part}-{query_id}" for query_id in features.query_ids))


def _fold_folders(path: Path) -> dict[str, Path]:
    """The folders Fold1, Fold2, … by number, where one of them has a training file."""
    if not path.is_dir():
        return {}
    matches = [(re.fullmatch(r"[Ff]old([0-9]+)", folder.name), folder) for folder in path.iterdir()]
    found = {match[1]: folder for match, folder in matches if match}
    if not any(_candidates(folder, "train") for folder in found.values()):
        return {}
    return dict(sorted(found.items(), key=lambda item: int(item[0])))


def _candidates(folder: Path, part: str) -> list[Path]:
    names = [f"{prefix}{word}.txt{end}" for prefix in ("", "set1.") for word in PARTS[part] for end in ("", ".gz")]
    return [folder / name for name in names if (folder / name).is_file()]


def _file(folder: Path, part: str) -> Path:
    found = _candidates(folder, part)
    if len(found) == 1:
        return found[0]
    words = " or ".join(f"{word}.txt" for word in PARTS[part])
    got = ", ".join(file.name for file in found) or "none"
    raise UserError(f"{folder}: expected one of {words} (or set1.…), .gz or not, got {got}")
