"""The store of a fold of feature vectors: its text files, parsed once into arrays that are memory-mapped."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np

from rerank.data.letor.writer import write_documents
from rerank.data.types import Qrels
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, file_hash, short_hash
from rerank.utils.integrity import changes_since_record, write_record
from rerank.utils.json_files import read_json
from rerank.utils.locks import make_once

FORMAT = 4
"""Changes when the files of a store change."""


@dataclass(frozen=True)
class FeatureSet:
    """Queries with the feature vectors of their documents; a query's documents are together.

    features: (documents, features) float32; labels: (documents,) int32; starts, stops: (queries,) int64, query q has
    the documents starts[q]:stops[q]; query_ids: one for each query. ids: (documents,) bytes, empty for a document
    without an id, or None if no document has one. Features, labels and ids are memory-mapped.
    """

    features: np.ndarray
    labels: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    query_ids: tuple[str, ...]
    ids: np.ndarray | None = None

    def doc_ids(self, query: int) -> tuple[str, ...]:
        """The ids of a query's documents, in their order; a document i without an id, from 0, gets `query_id-i`."""
        start, stop = int(self.starts[query]), int(self.stops[query])
        ids = [b""] * (stop - start) if self.ids is None else self.ids[start:stop].tolist()
        return tuple(doc_id.decode() or f"{self.query_ids[query]}-{i}" for i, doc_id in enumerate(ids))

    def qrels(self) -> Qrels:
        """The labels of the documents, by query."""
        ranges = zip(self.starts.tolist(), self.stops.tolist(), strict=True)
        return {
            query_id: dict(zip(self.doc_ids(query), self.labels[start:stop].tolist(), strict=True))
            for query, (query_id, (start, stop)) in enumerate(zip(self.query_ids, ranges, strict=True))
        }

    def subset(self, query_ids: Sequence[str]) -> "FeatureSet":
        """The set of these queries, in this order; no vector is copied. Raises KeyError for an unknown query."""
        numbers = {query_id: number for number, query_id in enumerate(self.query_ids)}
        rows = np.array([numbers[query_id] for query_id in query_ids], dtype=np.int64)
        return replace(self, starts=self.starts[rows], stops=self.stops[rows], query_ids=tuple(query_ids))


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
