"""The store of a fold: its text files, parsed once into arrays that are memory-mapped."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np

from rerank.data.letor.feature_set import FeatureSet
from rerank.data.letor.store_writer import write_documents
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, file_hash, short_hash
from rerank.utils.integrity import changes_since_record, write_record
from rerank.utils.json_files import read_json
from rerank.utils.locks import make_once

FORMAT = 4
"""Changes when the files of a store change."""


class Facts(TypedDict):
    """facts.json of a store: the query ids of each part in turn, and the SHA-256 of each text file by name."""

    query_ids: dict[str, list[str]]
    checksums: dict[str, str]


class Store(NamedTuple):
    """The queries of all files of a fold, the query ids of each part, and the SHA-256 of each file by name."""

    features: FeatureSet
    query_ids: dict[str, tuple[str, ...]]
    checksums: dict[str, str]


def open_store(files: Mapping[str, Path], cache: Path) -> Store:
    """The store of a fold's files, by part, under `cache`; parses them if they are new or have another size or time.

    Raises UserError for a file that cannot be read or is malformed, for a document that a query has twice, and for a
    damaged store.
    """
    stamps = [(file.resolve(), file.stat().st_size, file.stat().st_mtime_ns) for file in files.values()]
    folder = cache / f"letor-{short_hash(FORMAT, *stamps)}"
    make_once(folder, "features", lambda: _write(folder, files))
    return _load(folder)


def _write(folder: Path, files: Mapping[str, Path]) -> None:
    with atomic_write(folder) as tmp:
        tmp.mkdir()
        query_ids = write_documents(tmp, files)
        facts = Facts(query_ids=query_ids, checksums={file.name: file_hash(file) for file in files.values()})
        (tmp / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
        write_record(tmp)
        documents = _load(tmp).features
        if documents.ids is not None:
            _expect_distinct(documents, ", ".join(map(str, files.values())))


def _expect_distinct(documents: FeatureSet, where: str) -> None:
    """Raises UserError for a document that a query has twice: no run can hold both."""
    for query, query_id in enumerate(documents.query_ids):
        doc_ids = documents.doc_ids(query)
        if len(set(doc_ids)) < len(doc_ids):
            doc_id = next(doc_id for place, doc_id in enumerate(doc_ids) if doc_id in doc_ids[:place])
            raise UserError(f"{where}: expected a document once in a query, got {doc_id} of query {query_id} again")


def _load(folder: Path) -> Store:
    remedy = f"remove {folder} and run again"
    if changed := changes_since_record(folder):
        raise UserError(f"{folder}: the stored features have changed ({'; '.join(changed)}); {remedy}")
    facts: Facts = read_json(folder / "facts.json", Facts, remedy)
    names = ["features", "labels", "offsets", *(["doc_ids"] if (folder / "doc_ids.npy").exists() else [])]
    features, labels, offsets, *doc_ids = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in names)
    query_ids = {part: tuple(some) for part, some in facts["query_ids"].items()}
    all_ids = tuple(query_id for some in query_ids.values() for query_id in some)
    documents = FeatureSet(features, labels, offsets[:-1], offsets[1:], all_ids, *doc_ids)
    return Store(documents, query_ids, facts["checksums"])
