"""The folds of feature-based data sets: a file, a folder of folds, or training, validation and test files."""

import codecs
import contextlib
import re
from pathlib import Path

from rerank.data.folds import make_folds, select_folds
from rerank.data.letor.store import Store, open_store
from rerank.data.text_lines import open_text
from rerank.data.types import Fold
from rerank.utils.errors import UserError

FILES = {"train": "train.txt", "valid": "vali.txt", "test": "test.txt"}
"""The file of each part in LETOR and MSLR."""
YAHOO = {"train": "set1.train.txt", "valid": "set1.valid.txt", "test": "set1.test.txt"}
EXPECTED = (
    "expected a file, or a folder with train.txt, vali.txt and test.txt (Yahoo: set1.train.txt, …), in Fold1, Fold2, … "
    "or not, .gz or not"
)
LINE = re.compile(rb"\s*[-+]?[0-9]\S*\s+qid:")
"""A label and a query id: what tells feature files from others."""
BEGINNING = 2**16
"""Bytes of a file that show whether it has feature vectors."""


def is_feature_source(source: str) -> bool:
    """Whether `source` is a file of SVMlight lines, or a folder with feature files in a known layout."""
    path = Path(source)
    return _has_features(path) if path.is_file() else _has_layout(path)


def fold_names(source: str, folds: int) -> list[str]:
    """The names of the folds: those of the data set, or "1" to `folds` for a single file.

    Raises UserError if `source` is not a feature source, and for a folder in no known layout.
    """
    path = Path(source)
    if path.is_file():
        return [str(i + 1) for i in range(folds)]
    if not _has_layout(path):
        raise UserError(f"{source}: no feature files; {EXPECTED}")
    return list(_fold_folders(path)) or ["1"]


def open_fold(source: str, name: str, folds: int, cache: Path) -> tuple[Fold, Store]:
    """A fold of the data set and the store of its files, parsed into `cache` once; a single file is split into `folds`.

    `name` is one of `fold_names`. Raises UserError with file and line for malformed files, for files without a
    document, and for a query that is in more than one of them.
    """
    store, path = _open(source, name, cache), Path(source)
    if path.is_file():
        (fold,) = select_folds(make_folds(store.features.query_ids, folds), name)
    else:
        fold = Fold(name, **store.query_ids)
    return fold, store


def open_all(source: str, cache: Path) -> Store:
    """All queries of the data set: of its one file, or of the files of its first fold."""
    return _open(source, fold_names(source, 1)[0], cache)


def _open(source: str, name: str, cache: Path) -> Store:
    path = Path(source)
    if path.is_file():
        return open_store({"all": path}, cache)
    folder = _fold_folders(path).get(name, path)
    return open_store({part: _file_of(folder, part) for part in FILES}, cache)


def _files_of(folder: Path, part: str) -> list[Path]:
    """The files of a part, "train", "valid" or "test", that are in a folder."""
    names = [f"{name}{end}" for name in (FILES[part], YAHOO[part]) for end in ("", ".gz")]
    return [folder / name for name in names if (folder / name).is_file()]


def _file_of(folder: Path, part: str) -> Path:
    """The file of a part; raises UserError if there is none or several."""
    files = _files_of(folder, part)
    if len(files) == 1:
        return files[0]
    got = ", ".join(file.name for file in files) or "none"
    raise UserError(f"{folder}: expected one of {FILES[part]} and {YAHOO[part]}, .gz or not, got {got}")


def _fold_folders(path: Path) -> dict[str, Path]:
    """The folders Fold1, Fold2, … by number, if one of them has a training file."""
    if not path.is_dir():
        return {}
    matches = [(re.fullmatch(r"[Ff]old([0-9]+)", folder.name), folder) for folder in path.iterdir()]
    folders = {match[1]: folder for match, folder in matches if match}
    if not any(_files_of(folder, "train") for folder in folders.values()):
        return {}
    return dict(sorted(folders.items(), key=lambda item: int(item[0])))


def _has_layout(folder: Path) -> bool:
    """Whether a folder without a collection of texts has a training, validation or test file, or folds that have."""
    has_files = any(_files_of(folder, part) for part in FILES) or bool(_fold_folders(folder))
    return has_files and not (folder / "corpus.jsonl").exists()


def _has_features(path: Path) -> bool:
    """Whether a line near the file's beginning is one of SVMlight.

    True for an empty or a damaged file too: its reader says what is wrong. False for a pipe, and some files of /proc,
    whose end may never come.
    """
    lines: list[bytes] = []
    if path.is_file() and path.stat().st_size:
        with contextlib.suppress(UserError), open_text(path, EXPECTED) as file:
            lines = file.read(BEGINNING).removeprefix(codecs.BOM_UTF8).split(b"\n")
    filled = [line for line in lines if line.strip() and not line.lstrip().startswith(b"#")]
    return not filled or any(map(LINE.match, filled))
