"""The layouts of feature-based data sets: a file, a folder of folds, or training, validation and test files."""

import gzip
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rerank.data.folds import make_folds, select_folds
from rerank.data.letor.feature_set import FeatureSet, join
from rerank.data.letor.store import Store, build_store, open_store
from rerank.data.letor.store_writer import side_file
from rerank.utils.errors import UserError
from rerank.utils.locks import locked

PARTS = {"train": ("train",), "valid": ("vali", "valid"), "test": ("test",)}
SVMLIGHT = re.compile(rb"(\xef\xbb\xbf)?\s*[-+]?[0-9]\S*\s+(qid:|[0-9]+:)")
BEGINNING = 2**16
"""The bytes of a file that show whether it has feature vectors."""
LAYOUTS = "a file, or a folder with Fold*/{train,vali,test}.txt, {train,vali,test}.txt or set1.{train,valid,test}.txt"


class LetorFold(NamedTuple):
    """The queries that train, validate and test one model; the three sets are of one width, and share no query.

    name: "1", "2", …; a data set without folds is fold "1".
    """

    name: str
    train: FeatureSet
    valid: FeatureSet
    test: FeatureSet


def is_feature_source(source: str) -> bool:
    """Whether `source` is a file of SVMlight lines, or a folder with training files in a known layout."""
    path = Path(source)
    if path.is_file():
        return _has_features(path)
    return bool(_fold_folders(path)) or bool(_part_files(path, "train"))


def fold_names(source: str, folds: int) -> list[str]:
    """The names of the folds: those of the data set, or "1" to `folds` for a single file.

    Raises UserError if `source` is not a feature source.
    """
    path = Path(source)
    if path.is_file():
        return [str(i + 1) for i in range(folds)]
    if _fold_folders(path):
        return list(_fold_folders(path))
    if _part_files(path, "train"):
        return ["1"]
    raise UserError(f"{source}: no feature files; expected {LAYOUTS}, .gz or not")


def open_fold(source: str, name: str, folds: int, cache: Path) -> LetorFold:
    """A fold of the data set, parsed into `cache` once; a single file is split into `folds` by query.

    Raises UserError with file and line for malformed files, for files without a document, and for a query that is in
    more than one of them.
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
    if path.is_file():
        return {"all": build_store(path, cache)}
    folder = _fold_folders(path).get(name, path)
    return {part: build_store(_file(folder, part), cache) for part in PARTS}


def _rename_queries(features: FeatureSet, part: str, path: Path) -> FeatureSet:
    """Adds the file to the ids of queries that are only numbered, so that no two files have the same id."""
    if not side_file(path).is_file():
        return features
    return replace(features, query_ids=tuple(f"{part}-{query_id}" for query_id in features.query_ids))


def _has_features(path: Path) -> bool:
    """Whether a line near the file's beginning looks like SVMlight: a number, then `qid:` or `index:`.

    An empty or damaged file may have features too: its reader says what is wrong.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            beginning = file.read(BEGINNING)
    except (OSError, EOFError, zlib.error):
        return True
    return not beginning.strip() or any(map(SVMLIGHT.match, beginning.split(b"\n")))


def _fold_folders(path: Path) -> dict[str, Path]:
    """The folders Fold1, Fold2, … by number, if one of them has a training file."""
    if not path.is_dir():
        return {}
    matches = [(re.fullmatch(r"[Ff]old([0-9]+)", folder.name), folder) for folder in path.iterdir()]
    folders = {match[1]: folder for match, folder in matches if match}
    if not any(_part_files(folder, "train") for folder in folders.values()):
        return {}
    return dict(sorted(folders.items(), key=lambda item: int(item[0])))


def _part_files(folder: Path, part: str) -> list[Path]:
    names = [f"{prefix}{word}.txt{end}" for prefix in ("", "set1.") for word in PARTS[part] for end in ("", ".gz")]
    return [folder / name for name in names if (folder / name).is_file()]


def _file(folder: Path, part: str) -> Path:
    files = _part_files(folder, part)
    if len(files) == 1:
        return files[0]
    words = " or ".join(f"{word}.txt" for word in PARTS[part])
    got = ", ".join(file.name for file in files) or "none"
    raise UserError(f"{folder}: expected one of {words} (or set1.…), .gz or not, got {got}")
