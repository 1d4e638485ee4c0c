"""The folds of feature-based data sets: a file, a folder of folds, or training, validation and test files."""

import codecs
import contextlib
import re
from pathlib import Path

from rerank.data.folds import make_folds
from rerank.data.letor.store import Store, open_feature_store
from rerank.data.text_lines import open_text, read_lines
from rerank.data.types import FINAL, Fold
from rerank.utils.errors import UserError
from rerank.utils.inside import inside

FILES = {
    "train": ("train.txt", "set1.train.txt", "trainingset.txt"),
    "valid": ("vali.txt", "set1.valid.txt", "validationset.txt"),
    "test": ("test.txt", "set1.test.txt", "testset.txt"),
}  # the file names of LETOR 4.0 and MSLR, of Yahoo, and of LETOR 3.0
EXPECTED = (
    "expected a file, or a folder with train.txt, vali.txt and test.txt (Yahoo: set1.train.txt, …; LETOR 3.0: "
    "trainingset.txt, …), in Fold1, Fold2, … or not, .gz or not"
)
LINE = re.compile(rb"\s*[-+]?[0-9]\S*\s+qid:")  # the beginning of a line of feature vectors
BEGINNING = 2**16  # bytes that are searched for such a line


def is_feature_source(source: str) -> bool:
    """Whether `source` is a file of SVMlight lines, or a folder in a known layout that has no corpus of texts."""
    path = Path(source)
    if path.is_file():
        return path.suffix != ".jsonl" and _has_features(path)
    found = (_files(path, folder) for folder in _folders(path).values())
    return source != "" and any(found) and not (path / "corpus.jsonl").exists()


def name_of(source: str) -> str:
    """The name of a data set's folder of results: that of its folder, or of its file without .txt and .gz."""
    return Path(source).resolve().name.removesuffix(".gz").removesuffix(".txt")


def lacks_query_ids(source: str) -> bool:
    """Whether a file has SVMlight lines without query ids, which give no rankings."""
    if not Path(source).is_file():
        return False
    first = next(iter(read_lines(source, EXPECTED)), None)
    return first is not None and re.match(rb"\s*[-+]?[0-9]\S*\s+[0-9]+:", first[2]) is not None


def fold_names(source: str, folds: int) -> list[str]:
    """The names of the data set's folds, or "1" to `folds` for a file; raises UserError for any other source."""
    if not is_feature_source(source):
        raise UserError(f"{source}: no feature files; {EXPECTED}")
    return [str(i + 1) for i in range(folds)] if Path(source).is_file() else list(_folders(Path(source)))


def open_fold(source: str, name: str, folds: int, cache: Path) -> tuple[Fold, Store]:
    """A fold of the data set and the store of its files, parsed into `cache` once; a single file is cut into `folds`.

    `name` is one of `fold_names`. Raises UserError with file and line for malformed files, files without a document,
    and a query in more than one file.
    """
    path = Path(source)
    if path.is_file():
        store = open_feature_store({"all": path}, cache)
        return {fold.name: fold for fold in make_folds(store.features.query_ids, folds)}[name], store
    folder = _folders(path)[name]
    files = _files(path, folder)
    if missing := [names for split, names in FILES.items() if split not in files]:
        raise UserError(f"{folder}: expected {' or '.join(missing[0])}, .gz or not, got none")
    store = open_feature_store(files, cache)
    return Fold(name, **store.query_ids), store


def place_of_label(source: str, name: str, label: int) -> str:
    """The first line, as file:line, with this label in the files of a fold."""
    lines = (line for file in fold_files(source, name) for line in read_lines(file, EXPECTED))
    return next((place for place, _, line in lines if LINE.match(line) and float(line.split()[0]) == label), source)


def fold_files(source: str, name: str) -> list[Path]:
    """The files of a fold, or none; the final model learns from all queries, which the first fold has too."""
    path = Path(source)
    if path.is_file():
        return [path]
    folders = _folders(path)
    folder = next(iter(folders.values())) if name == FINAL else folders.get(name)
    return list(_files(path, folder).values()) if folder else []


def _files(source: Path, folder: Path) -> dict[str, Path]:
    """Split -> its file, for the splits that a folder has; of a file and its .gz the file, which may be edited.

    Raises UserError for a link that leads out of the data set's folder, `source`.
    """
    found = {}
    for split, names in FILES.items():
        places = [folder / f"{name}{end}" for name in names for end in ("", ".gz")]
        if there := [place for place in places if place.is_file()]:
            found[split] = inside(source, there[0].relative_to(source))
    return found


def _folders(path: Path) -> dict[str, Path]:
    """Number -> folder of Fold1, Fold2, …; without them the folder itself is fold 1."""
    matches = [re.fullmatch(r"[Ff]old([0-9]+)", folder.name) for folder in path.glob("*/")]
    folders = {match[1]: path / match[0] for match in matches if match}
    return dict(sorted(folders.items(), key=lambda item: int(item[0]))) or {"1": path}


def _has_features(path: Path) -> bool:
    """Whether a line near the beginning is SVMlight; also true for an empty or damaged file, whose reader raises."""
    lines: list[bytes] = []
    if path.stat().st_size:
        with contextlib.suppress(UserError), open_text(path, EXPECTED) as file:
            lines = file.read(BEGINNING).removeprefix(codecs.BOM_UTF8).split(b"\n")
    filled = [line for line in lines if line.strip() and not line.lstrip().startswith(b"#")]
    return not filled or any(map(LINE.match, filled))
