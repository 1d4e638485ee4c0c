"""The store of a fold of feature vectors: text files, parsed once into memory-mapped arrays."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypedDict

import numpy as np

from rerank.data.letor.parser import LINE, LineError, Lines, parse
from rerank.data.store import StoreWriter, open_store
from rerank.data.text_lines import read_blocks, size_of
from rerank.data.types import Qrels
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash, short_hash
from rerank.utils.json_files import read_json
from rerank.utils.parallel import ordered_map
from rerank.utils.progress import progress

FORMAT = 7  # increases when the format of a store's files changes
BLOCK = 4 * 2**20  # bytes of text that are parsed at once
LONGEST_LINE = 4 * 2**20  # bytes
VALUES_AT_ONCE = 2**22  # values of a dense block of rows
FACTS = "facts.json"
FEATURES = "features"
LABELS = "labels"
DOC_IDS = "doc_ids"
COLUMNS = {FEATURES: np.float32, LABELS: np.int32, DOC_IDS: np.uint8}
"""The columns of an item, which is a query; all document ids are padded to the longest."""


@dataclass(frozen=True)
class FeatureSet:
    """Queries with the feature vectors of their documents; the documents of a query are consecutive.

    features: (documents, features) float32; labels: (documents,) int32; starts, stops: (queries,) int64, query q has
    the documents starts[q]:stops[q]; query_ids: one per query; ids: (documents,) bytes, empty for a document without an
    id; first_feature: the number in the file of the first column, 0 or 1. Features, labels and ids are memory-mapped.
    """

    features: np.ndarray
    labels: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    query_ids: tuple[str, ...]
    ids: np.ndarray
    first_feature: int = 1

    def doc_ids(self, query: int) -> tuple[str, ...]:
        """The ids of a query's documents, in their order; document i (from 0) without an id gets `query_id-i`."""
        start, stop = int(self.starts[query]), int(self.stops[query])
        ids = enumerate(self.ids[start:stop].tolist())
        return tuple(doc_id.decode() or f"{self.query_ids[query]}-{i}" for i, doc_id in ids)

    def qrels(self) -> Qrels:
        """query_id -> doc_id -> label."""
        return {
            query_id: dict(zip(self.doc_ids(query), self.labels[start:stop].tolist(), strict=True))
            for query, (query_id, start, stop) in enumerate(zip(self.query_ids, self.starts, self.stops, strict=True))
        }

    def subset(self, query_ids: Sequence[str]) -> "FeatureSet":
        """The set with only these queries, in this order, without copies. Raises KeyError for an unknown query."""
        numbers = {query_id: number for number, query_id in enumerate(self.query_ids)}
        rows = np.array([numbers[query_id] for query_id in query_ids], dtype=np.int64)
        return replace(self, starts=self.starts[rows], stops=self.stops[rows], query_ids=tuple(query_ids))


class StoreFacts(TypedDict):
    """What FACTS holds: the number of queries by split, the number of the first feature, the SHA-256 by file name."""

    queries: dict[str, int]
    first_feature: int
    checksums: dict[str, str]


class Store(NamedTuple):
    """The queries of all files of a fold, the query ids by split, and the SHA-256 by file name."""

    features: FeatureSet
    query_ids: dict[str, tuple[str, ...]]
    checksums: dict[str, str]


def open_feature_store(files: Mapping[str, Path], cache: Path) -> Store:
    """Opens the store of a fold's files, split -> file, under `cache`; parses them if they are new or have changed.

    Raises UserError for a file that cannot be read or is malformed, a document that a query has twice, and a damaged
    store.
    """
    stamps = [(file.resolve(), file.stat().st_size, file.stat().st_mtime_ns) for file in files.values()]
    folder = cache / f"letor-{short_hash(FORMAT, *stamps)}"
    made = open_store(folder, "features", COLUMNS, lambda writer: _fill(writer, files))
    facts = read_json(folder / FACTS, StoreFacts, f"remove {folder} and run again")
    labels, ends, queries = made.values[LABELS], made.offsets(LABELS), tuple(made.ids)
    features = made.values[FEATURES].reshape(len(labels), -1)
    doc_ids = made.values[DOC_IDS].view(f"S{len(made.values[DOC_IDS]) // len(labels)}")
    left = iter(queries)
    query_ids = {split: tuple(islice(left, count)) for split, count in facts["queries"].items()}
    found = FeatureSet(features, labels, ends[:-1], ends[1:], queries, doc_ids, facts["first_feature"])
    return Store(found, query_ids, facts["checksums"])


def _fill(writer: StoreWriter, files: Mapping[str, Path]) -> None:
    """Adds the queries of all files: features, 0 if a line lacks a feature, labels and document ids.

    The features are numbered from 0 if a document has feature 0, otherwise from 1. Raises UserError with file and line
    for malformed text, and for a file without a document or a feature.
    """
    with tempfile.TemporaryFile(dir=writer.folder) as blocks:
        documents = _Documents(blocks)
        counts = {split: len(documents.read(path)) for split, path in files.items()}
        blocks.seek(0)
        labels, doc_ids = np.concatenate(documents.labels), np.concatenate(documents.doc_ids)
        rows, bounds = _rows(blocks, documents), pairwise([*documents.starts, documents.rows])
        for number, (query_id, (start, stop)) in enumerate(zip(documents.first_lines, bounds, strict=True)):
            features = np.stack(list(islice(rows, stop - start)))
            if number >= writer.items:
                _check_once(files, query_id, doc_ids[start:stop])
                writer.add(query_id, features, labels[start:stop], doc_ids[start:stop].view(np.uint8))
    checksums = {file.name: file_hash(file) for file in files.values()}
    facts: StoreFacts = {"queries": counts, "first_feature": documents.first_feature, "checksums": checksums}
    (writer.folder / FACTS).write_text(json.dumps(facts), encoding="utf-8")


def _check_once(files: Mapping[str, Path], query_id: str, doc_ids: np.ndarray) -> None:
    """Raises UserError for a document that a query has twice, because a run cannot hold both."""
    if doc_ids.any():
        names = (doc_id.decode() or f"{query_id}-{place}" for place, doc_id in enumerate(doc_ids.tolist()))
        ((name, count),) = Counter(names).most_common(1)
        if count > 1:
            where = ", ".join(map(str, files.values()))
            raise UserError(f"{where}: expected a document once in a query, got {name} of query {query_id} again")


class _Documents:
    """The documents of the files read so far; their features are in `file`, block by block.

    The rows of a block have the features from 0 to the block's largest one; the width of all rows is known at the end.
    `first_lines` maps each query to the place of its first document.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.blocks: list[tuple[int, int]] = []  # rows and width of each block
        self.labels: list[np.ndarray] = []
        self.doc_ids: list[np.ndarray] = []
        self.starts: list[int] = []
        self.first_lines: dict[str, tuple[Path, int]] = {}
        self.rows = self.width = 0
        self.first_feature = 1
        self.query: str | None = None

    def read(self, path: Path) -> tuple[str, ...]:
        queries, rows, number = len(self.starts), self.rows, 0
        self.query = None
        what, count = f"reading {path.parent.name}/{path.name}", -(-size_of(path) // BLOCK)
        blocks = read_blocks(path, f"lines of `{LINE}`", LONGEST_LINE, BLOCK)
        with closing(ordered_map(parse, blocks)) as parsed:
            for lines in progress(parsed, count, what):
                if isinstance(lines, LineError):
                    raise UserError(f"{path}:{number + lines.line + 1}: expected {lines.expected}, got {lines.got}")
                self._add(lines, path, number)
                number += lines.length
        if self.rows == rows or self.width <= self.first_feature:
            wanted = f"a document, as in `{LINE}`" if self.rows == rows else "a document with a feature"
            raise UserError(f"{path}:{number + 1}: expected {wanted}, got the end of the file")
        return tuple(self.first_lines)[queries:]

    def _add(self, lines: Lines, path: Path, number: int) -> None:
        for row, query_id in lines.queries:
            if query_id != self.query:
                self._begin(query_id, self.rows + row, path, number + int(lines.numbers[row]) + 1)
        rows, width = len(lines.labels), int(lines.features.max(initial=-1)) + 1
        places, step = np.repeat(np.arange(rows), lines.sizes), VALUES_AT_ONCE // max(1, width)
        for first in range(0, rows, step):
            size = min(step, rows - first)
            begin, end = np.searchsorted(places, (first, first + size))
            features = np.zeros((size, width), np.float32)
            features[places[begin:end] - first, lines.features[begin:end]] = lines.values[begin:end]
            self.file.write(features.data)
            self.blocks.append((size, width))
        self.labels.append(lines.labels)
        self.doc_ids.append(np.array(lines.doc_ids, "S"))
        self.rows += rows
        self.width = max(self.width, width)
        self.first_feature = min(self.first_feature, int(lines.features.min(initial=1)))

    def _begin(self, query_id: str, row: int, path: Path, line: int) -> None:
        if query_id in self.first_lines:
            before, first = self.first_lines[query_id]
            if before != path:
                raise UserError(f"{before} and {path}: expected no query in both, got query {query_id}")
            raise UserError(
                f"{path}:{line}: expected all lines of query {query_id} together, from line {first:,} on; got one "
                f"after query {self.query}"
            )
        self.first_lines[query_id], self.query = (path, line), query_id
        self.starts.append(row)


def _rows(blocks: BinaryIO, documents: _Documents) -> Iterator[np.ndarray]:
    """Yields the features of each document, 0 if its line lacks a feature."""
    first, width = documents.first_feature, documents.width
    for rows, own in documents.blocks:
        features = np.frombuffer(blocks.read(4 * rows * own), np.float32).reshape(rows, own)
        yield from np.pad(features, ((0, 0), (0, width - own)))[:, first:]
