"""The folds of feature-based data sets: a file, a folder of folds, or training, validation and test files."""

import codecs
import contextlib
import re
from pathlib import Path

from rerank.data.folds import make_folds
from rerank.data.letor.store import Store, open_store
from rerank.data.text_lines import open_text
from rerank.data.types import Fold
from rerank.utils.errors import UserError

FILES = {
    "train": ("train.txt", "set1.train.txt"),
    "valid": ("vali.txt", "set1.valid.txt"),
    "test": ("test.txt", "set1.test.txt"),
}  # as LETOR and MSLR, and as Yahoo call them
EXPECTED = (
    "expected a file, or a folder with train.txt, vali.txt and test.txt (Yahoo: set1.train.txt, …), in Fold1, Fold2, … "
    "or not, .gz or not"
)
LINE = re.compile(rb"\s*[-+]?[0-9]\S*\s+qid:")  # what tells feature files from others
BEGINNING = 2**16  # bytes of a file that show whether it has feature vectors


def is_feature_source(source: str) -> bool:
    """Whether `source` is a file of SVMlight lines, or a folder with such files, in a known layout, and no texts."""
    path = Path(source)
    if path.is_file():
        return _has_features(path)
    return any(map(_files, _folders(path).values())) and not (path / "corpus.jsonl").exists()


def fold_names(source: str, folds: int) -> list[str]:
    """The names of the folds: the data set's, or "1" to `folds` for a file; UserError if `source` is neither."""
    if not is_feature_source(source):
        raise UserError(f"{source}: no feature files; {EXPECTED}")
    return [str(i + 1) for i in range(folds)] if Path(source).is_file() else list(_folders(Path(source)))


def open_fold(source: str, name: str, folds: int, cache: Path) -> tuple[Fold, Store]:
    """A fold of the data set and the store of its files, parsed into `cache` once; a single file is split into `folds`.

    `name` is one of `fold_names`. Raises UserError with file and line for malformed files, for files without a
    document, and for a query that is in more than one of them.
    """
    path = Path(source)
    if path.is_file():
        store = open_store({"all": path}, cache)
        return {fold.name: fold for fold in make_folds(store.features.query_ids, folds)}[name], store
    folder = _folders(path)[name]
    files = _files(folder)
    if missing := [names for part, names in FILES.items() if part not in files]:
        raise UserError(f"{folder}: expected one of {' and '.join(missing[0])}, .gz or not, got none")
    store = open_store(files, cache)
    return Fold(name, **store.query_ids), store


def _files(folder: Path) -> dict[str, Path]:
    """The file of each part that is in a folder."""
    places = {part: [folder / f"{name}{end}" for name in names for end in ("", ".gz")] for part, names in FILES.items()}
    return {part: file for part, files in places.items() for file in files if file.is_file()}


def _folders(path: Path) -> dict[str, Path]:
    """The folders Fold1, Fold2, … by number; without them the folder itself, as the fold 1."""
    matches = [re.fullmatch(r"[Ff]old([0-9]+)", folder.name) for folder in path.glob("*/")]
    folders = {match[1]: path / match[0] for match in matches if match}
    return dict(sorted(folders.items(), key=lambda item: int(item[0]))) or {"1": path}


def _has_features(path: Path) -> bool:
    """Whether a line near the beginning is one of SVMlight; an empty or damaged file is left to its reader."""
    lines: list[bytes] = []
    if path.stat().st_size:
        with contextlib.suppress(UserError), open_text(path, EXPECTED) as file:
            lines = file.read(BEGINNING).removeprefix(codecs.BOM_UTF8).split(b"\n")
    filled = [line for line in lines if line.strip() and not line.lstrip().startswith(b"#")]
    return not filled or any(map(LINE.match, filled))
