"""The file of a checkpoint with the queries that trained it or chose its epoch; it moves with the checkpoint."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

from rerank.data.types import Fold
from rerank.utils.inside import inside
from rerank.utils.json_files import read_json

TAUGHT = "trained_on.json"
"""The name of the file."""


class Taught(TypedDict):
    """documents: the fingerprint of the collection. queries: the ids of training and validation queries."""

    documents: str
    queries: list[str]


def write_taught(folder: Path, documents: str, fold: Fold) -> None:
    """Writes the queries of a fold into a checkpoint's folder."""
    facts: Taught = {"documents": documents, "queries": sorted({*fold.train, *fold.valid})}
    (folder / TAUGHT).write_text(json.dumps(facts, ensure_ascii=False), encoding="utf-8")


def copy_taught(checkpoint: Path, folder: Path) -> None:
    """Copies the file into another folder with the same model; there may be none."""
    if (checkpoint / TAUGHT).is_file():
        (folder / TAUGHT).write_bytes(inside(checkpoint, TAUGHT).read_bytes())


def taught_queries(folder: Path, documents: str, query_ids: Iterable[str]) -> set[str] | None:
    """Those of the queries of a collection that trained a checkpoint; None if its folder does not say.

    A folder that names queries of other documents, such as an earlier state of the collection, does not say either:
    equal ids may be other queries. Raises UserError for a damaged file.
    """
    if not (folder / TAUGHT).is_file():
        return None
    facts: Taught = read_json(inside(folder, TAUGHT), Taught, "remove it, or copy the checkpoint again")
    return set(facts["queries"]).intersection(query_ids) if facts["documents"] == documents else None
