"""The file names of feature-based data sets."""

import codecs
import contextlib
import re
from pathlib import Path

from rerank.data.text_lines import open_text
from rerank.utils.errors import UserError

PARTS = {
    "train": ("train", "trainingset"),
    "valid": ("vali", "valid", "validationset"),
    "test": ("test", "testset"),
}
FORMS = ("{}.txt", "set1.{}.txt")
"""LETOR's and MSLR's names, and Yahoo's."""
EXPECTED = (
    "expected a file, or a folder with train.txt, vali.txt and test.txt, in Fold1, Fold2, … or not (LETOR 3.0: "
    "trainingset.txt, …; Yahoo: set1.train.txt, …), .gz or not"
)
LINE = re.compile(rb"\s*[-+]?[0-9]\S*\s+qid:")
"""A label and a query id: what tells feature files from others."""
BEGINNING = 2**16
"""Bytes of a file that show whether it has feature vectors."""


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
    raise UserError(f"{folder}: expected one of {words} (or set1.…), .gz or not, got {got}")


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
    """Whether a folder without a collection of texts has a training, validation or test file, or folds that have."""
    has_files = any(part_files(folder, part) for part in PARTS) or bool(fold_folders(folder))
    return has_files and not (folder / "corpus.jsonl").exists()


def has_features(path: Path) -> bool:
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
