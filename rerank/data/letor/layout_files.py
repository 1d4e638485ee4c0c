"""The file names of feature-based data sets, and the error for a folder that has other ones."""

import codecs
import gzip
import itertools
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
EXPECTED = (
    "expected a file, or a folder with train.txt, vali.txt and test.txt, in Fold1, Fold2, … or not (LETOR 3.0: "
    "trainingset.txt, …; Yahoo: set1.train.txt, …; LightGBM: rank.train, …), .gz or not"
)
LINE = re.compile(rb"\s*[-+]?[0-9]\S*(\s+qid:|(\s+[0-9]+:[-+.0-9eE]+)+\s*(#.*)?$)")
"""A label and a query id, or nothing but features: what tells feature files from others."""
BEGINNING = 2**16
"""Bytes of a file that show whether it has feature vectors."""
DEPTH = 3
"""LETOR 3.0 has Gov/QueryLevelNorm/2003_hp_dataset/Fold1: folders this far below the given one are looked into."""
FILES = 100
"""At most this many files of an unknown folder are opened."""


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
    """Whether a line near the file's beginning is one of SVMlight.

    True for an empty or a damaged file too: its reader says what is wrong.
    """
    lines = _first_lines(path)
    return not lines or any(map(LINE.match, lines))


def stray_files(path: Path) -> Iterator[Path]:
    """The files in a folder of no known layout, and below it, whose first line is one of SVMlight.

    None where there is a corpus.jsonl, as in a collection of texts.
    """
    if not (path / "corpus.jsonl").exists():
        below = (file for depth in range(DEPTH + 1) for file in sorted(path.glob("*/" * depth + "*")))
        for file in itertools.islice((file for file in below if file.is_file()), FILES):
            lines = _first_lines(file)
            if lines and LINE.match(lines[0]):
                yield file


def wrong_layout(source: str) -> UserError:
    """The error for a folder without a known layout: it names the feature files in it."""
    files = [str(file) for file in stray_files(Path(source))]
    if not files:
        return UserError(f"{source}: no feature files; {EXPECTED}")
    some = ", ".join(files[:3]) + (", …" if len(files) > 3 else "")
    return UserError(
        f"{source}: has features in {some}, but no training file itself; {EXPECTED}; a file given alone, as in "
        f"--collection {files[0]}, is divided into folds"
    )


def _first_lines(path: Path) -> list[bytes]:
    """The lines near the beginning of a file that are neither blank nor comments; [] if it cannot be read."""
    try:
        if not path.is_file() or not path.stat().st_size:  # reading a pipe, or some files of /proc, would never end
            return []
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            lines = file.read(BEGINNING).removeprefix(codecs.BOM_UTF8).split(b"\n")
    except (OSError, EOFError, zlib.error):
        return []
    return [line for line in lines if line.strip() and not line.lstrip().startswith(b"#")]
