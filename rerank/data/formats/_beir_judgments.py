"""The judgments of a folder in BEIR's layout: qrels/test.tsv, and qrels/train.tsv and qrels/dev.tsv where published."""

from pathlib import Path

from rerank.data.splits import Splits, merge_splits
from rerank.data.text_lines import size_of_text
from rerank.data.trec import read_qrels
from rerank.data.types import Judgments

QRELS = "qrels/test.tsv"
JUDGMENTS = "qrels/*.tsv"
LARGE = 2**22
"""Bytes of text of a file whose judgments are kept in arrays, in 8 bytes each; as a dictionary they take 380."""
FILES = {"train": "qrels/train.tsv", "valid": "qrels/dev.tsv", "test": QRELS}


def read_judgments(folder: Path, source: str) -> tuple[Judgments, Splits]:
    """All judgments that are used, and the published split: it needs test.tsv, which must exist, and train.tsv.

    Notes name the files in qrels/ that are not used. Raises UserError for a malformed file, and if all training queries
    are in another file too.
    """
    published = (folder / FILES["train"]).is_file()
    files = {part: folder / name for part, name in FILES.items() if published or part == "test"}
    parts = {part: _read(file) for part, file in files.items() if file.is_file()}
    unused = sorted(file.name for file in folder.glob(JUDGMENTS) if file not in files.values())
    why = "" if published else f"; a published split needs {FILES['train']} beside {QRELS}"
    notes = (f"{source}: in qrels/, {', '.join(unused)} {'is' if len(unused) == 1 else 'are'} not used{why}",)
    if not published:
        return parts["test"], Splits(notes=notes if unused else ())
    qrels, splits = merge_splits(parts, source)
    return qrels, Splits(splits.train, splits.valid, splits.test, ((*notes,) if unused else ()) + splits.notes)


def _read(file: Path) -> Judgments:
    if size_of_text(file) < LARGE:
        return read_qrels(file)
    from rerank.data.trec_arrays import read_qrels_arrays  # loads pyarrow

    return read_qrels_arrays(file)


def file_of(query_id: str, splits: Splits) -> str:
    """The file that judges a query."""
    return next((FILES[part] for part in ("train", "valid") if query_id in getattr(splits, part)), QRELS)
