"""The judgments of a folder in BEIR's layout: qrels/test.tsv, and qrels/train.tsv and qrels/dev.tsv where published."""

from pathlib import Path

from rerank.data.splits import Judged, merge_splits
from rerank.data.text_lines import size_of_text
from rerank.data.trec import read_qrels
from rerank.data.types import Judgments

QRELS = "qrels/test.tsv"
JUDGMENTS = "qrels/*.tsv"
LARGE = 2**22
"""Bytes of text of a file whose judgments are kept in arrays, in 8 bytes each; as a dictionary they take 380."""
FILES = {"train": "qrels/train.tsv", "valid": "qrels/dev.tsv", "test": QRELS}


def read_judgments(folder: Path, source: str) -> Judged:
    """All judgments that are used, and the published split: it needs test.tsv, which must exist, and train.tsv.

    Notes name the files in qrels/ that are not used. Raises UserError for a malformed file, and if all training queries
    are in another file too.
    """
    published = (folder / FILES["train"]).is_file()
    files = {part: folder / name for part, name in FILES.items() if published or part == "test"}
    parts = {part: _read(file) for part, file in files.items() if file.is_file()}
    unused = sorted(file.name for file in folder.glob(JUDGMENTS) if file not in files.values())
    why = "" if published else f"; a published split needs {FILES['train']} beside {QRELS}"
    note = f"{source}: in qrels/, {', '.join(unused)} {'is' if len(unused) == 1 else 'are'} not used{why}"
    notes = (note,) if unused else ()
    return merge_splits(parts, source, *notes) if published else Judged(parts["test"], notes=notes)


def _read(file: Path) -> Judgments:
    if size_of_text(file) < LARGE:
        return read_qrels(file)
    from rerank.data.trec_arrays import read_qrels_arrays  # loads pyarrow

    return read_qrels_arrays(file)


def file_of(folder: Path, query_id: str) -> str:
    """The file that judges a query; reads the files again."""
    names = [name for name in reversed(FILES.values()) if (folder / name).is_file()]
    return next(name for name in names if query_id in _read(folder / name))
