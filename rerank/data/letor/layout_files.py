"""The file names of feature-based data sets, and what to say of a folder that has other ones."""

import codecs
import gzip
import itertools
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from rerank.utils.errors import UserError

PARTS = {
    "train": ("train", "trainingset"),
    "valid": ("vali", "valid", "validationset"),
    "test": ("test", "testset"),
}
FORMS = ("{}.txt", "set1.{}.txt", "rank.{}")
"""LETOR's and MSLR's names, Yahoo's and LightGBM's."""
SVMLIGHT = re.compile(rb"(\xef\xbb\xbf)?\s*[-+]?[0-9]\S*\s+(qid:|[0-9]+:)")
BEGINNING = 2**16
"""The bytes of a file that show whether it has feature vectors."""
LAYOUTS = (
    "a file, or a folder with train.txt, vali.txt and test.txt, in Fold1, Fold2, … or not (LETOR 3.0: trainingset.txt, "
    "…; Yahoo: set1.train.txt, …; LightGBM: rank.train, …)"
)
LINE = re.compile(rb"\s*[-+]?[0-9]\S*(\s+qid:\S+)?(\s+[0-9]+:[-+.0-9eE]+)+\s*(#.*)?")
"""A whole line: what tells feature files from others where their names do not."""
DEPTH = 3
"""LETOR 3.0 has Gov/QueryLevelNorm/2003_hp_dataset/Fold1: folders this far below the given one are looked into."""
FILES = 100
"""At most so many files of an unknown folder are opened."""


def part_files(folder: Path, part: str) -> list[Path]:
    """The files of a part, "train", "valid" or "test", that are in a folder: one of each name that it may have."""
    names = [f"{form.format(word)}{end}" for form in FORMS for word in PARTS[part] for end in ("", ".gz")]
    return [folder / name for name in names if (folder / name).is_file()]


def part_file(folder: Path, part: str) -> Path:
    """The file of a part; raises UserError if there is none or several."""
    files = part_files(folder, part)
    if len(files) == 1:
        return files[0]
    words = " or ".join(f"{word}.txt" for word in PARTS[part])
    got = ", ".join(file.name for file in files) or "none"
    raise UserError(f"{folder}: expected one of {words} (or set1.…, rank.…), .gz or not, got {got}")


def fold_folders(path: Path) -> dict[str, Path]:
    """The folders Fold1, Fold2, … by number, if one of them has a training file."""
    if not path.is_dir():
        return {}
    matches = [(re.fullmatch(r"[Ff]old([0-9]+)", folder.name), folder) for folder in path.iterdir()]
    folders = {match[1]: folder for match, folder in matches if match}
    if not any(part_files(folder, "train") for folder in folders.values()):
        return {}
    return dict(sorted(folders.items(), key=lambda item: int(item[0])))


def has_layout(folder: Path) -> bool:
    """Whether a folder has training files, or folds that have."""
    return bool(part_files(folder, "train")) or bool(fold_folders(folder))


def has_features(path: Path) -> bool:
    """Whether a line near the file's beginning looks like SVMlight: a number, then `qid:` or `index:`.

    An empty or damaged file may have features too: its reader says what is wrong.
    """
    beginning = _beginning(path)
    return beginning is None or not beginning.strip() or any(map(SVMLIGHT.match, beginning.split(b"\n")))


def stray_files(path: Path) -> Iterator[Path]:
    """The files that begin with a whole SVMlight line, in a folder of no known layout and in those below it.

    None where there is a corpus.jsonl, as in a collection of texts.
    """
    if not (path / "corpus.jsonl").exists():
        files = (folder / name for folder, names in _walk(path) for name in names)
        yield from filter(_begins_with_features, itertools.islice(files, FILES))


def wrong_layout(source: str) -> UserError:
    """The error of a folder that has no layout: where feature files are, if there are any, and what was expected."""
    path = Path(source)
    below: list[Path] = []
    for folder, _ in _walk(path):
        if has_layout(folder) and not any(found in folder.parents for found in below):
            below.append(folder)
    if below:
        return UserError(
            f"{source}: has neither corpus.jsonl nor training features itself; give one of the folders below it that "
            f"have features: {_some(below)}"
        )
    stray = list(stray_files(path))
    if not stray:
        return UserError(f"{source}: no feature files; expected {LAYOUTS}, .gz or not")
    return UserError(
        f"{source}: has features in {_some(stray)}, but no training file; expected {LAYOUTS}, .gz or not; a file given "
        f"alone, as in --collection {stray[0]}, is divided into folds"
    )


def _walk(path: Path) -> Iterator[tuple[Path, list[str]]]:
    """The folders down to DEPTH below this one, by name, and the names of the files in each."""
    for folder, below, files in os.walk(path):
        below[:] = sorted(below) if len(Path(folder).relative_to(path).parts) < DEPTH else []
        yield Path(folder), sorted(files)


def _some(paths: list[Path]) -> str:
    return ", ".join(map(str, paths[:3])) + (", …" if len(paths) > 3 else "")


def _begins_with_features(path: Path) -> bool:
    try:
        if not path.is_file() or not path.stat().st_size:  # to open a pipe, or some files of /proc, would wait for ever
            return False
    except OSError:
        return False
    lines = (_beginning(path) or b"").removeprefix(codecs.BOM_UTF8).split(b"\n")
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith(b"#")), b"")
    return bool(LINE.fullmatch(first))


def _beginning(path: Path) -> bytes | None:
    """The first bytes of a file; None if it cannot be read."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read(BEGINNING)
    except (OSError, EOFError, zlib.error):
        return None
