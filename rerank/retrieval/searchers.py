"""Lucene indexes on disk: what is one, whether it is undamaged, and a searcher of it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rerank.retrieval.java import java_class, java_error_in_one_line
from rerank.utils.errors import UserError
from rerank.utils.files import short_hash
from rerank.utils.integrity import changes_since_record, write_record

REMEDY = "if rerank or Pyserini made it, remove the folder and run again; otherwise take another index"
LOCK = "write.lock"
"""An empty file of Lucene, which whoever writes to the index locks."""


def check_index(index: Path) -> Path:
    """The same folder. Raises UserError if there is no Lucene index in it."""
    if not any(index.glob("segments_*")):
        raise UserError(f"index {index}: not a folder with a Lucene index; expected a file segments_N in it")
    return index


def index_identity(index: Path) -> str:
    """A hash of the index's commits: Lucene writes a random id into each."""
    return short_hash("lucene", *sorted(path.read_bytes() for path in index.glob("segments_*")))


def record_index(folder: Path) -> None:
    """Writes the record of the files of an index that is complete, and removes Lucene's lock, which nobody needs."""
    (folder / LOCK).unlink(missing_ok=True)
    write_record(folder)


def expect_undamaged(folder: Path) -> None:
    """Raises UserError if an own index is not what was written; one of an older version has no record to tell by."""
    changed = changes_since_record(folder)
    if not changed and not any(folder.glob("segments_*")):
        changed = ["expected a file segments_N, found none"]
    if changed:
        raise UserError(f"index {folder}: damaged ({'; '.join(changed[:3])}); remove the folder to build it again")


@contextlib.contextmanager
def open_searcher(index: Path) -> Iterator[Any]:
    """Anserini's searcher of a Lucene index, closed at the end.

    Raises UserError if `index` is not one, and for an error of Java in the block, such as of a damaged index.
    """
    with java_error_in_one_line(f"index {index}: Lucene cannot read it", REMEDY):
        searcher = java_class("io.anserini.search.SimpleSearcher")(str(check_index(index).resolve()))
        try:
            yield searcher
        finally:
            searcher.close()


def count_documents(index: Path) -> int:
    """The number of documents of a Lucene index."""
    with open_searcher(index) as searcher:
        return int(searcher.get_total_num_docs())
