"""The store of a fold of feature vectors: its text files, parsed once into arrays that are memory-mapped."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from rerank.data.letor.parser import LINE, LineError, Lines, parse
from rerank.data.ragged import write_array
from rerank.data.text_lines import read_blocks, size_of
from rerank.data.types import Qrels
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, file_hash, short_hash
from rerank.utils.integrity import changes_since_record, write_record
from rerank.utils.json_files import read_json
from rerank.utils.locks import make_once
from rerank.utils.parallel import ordered_map
from rerank.utils.progress import progress

FORMAT = 5  # changes when the files of a store change
BLOCK = 4 * 2**20  # bytes of text that are parsed at a time
LONGEST_LINE = 4 * 2**20
VALUES_AT_A_TIME = 2**22
FACTS = "facts.json"


@dataclass(frozen=True)
class FeatureSet:
    """Queries with the feature vectors of their documents; a query's documents are together.

    features: (documents, features) float32; labels: (documents,) int32; starts, stops: (queries,) int64, query q has
    the documents starts[q]:stops[q]; query_ids: one for each query. ids: (documents,) bytes, empty for a document
    without an id. Features, labels and ids are memory-mapped.
    """

    features: np.ndarray
    labels: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    query_ids: tuple[str, ...]
    ids: np.ndarray

    def doc_ids(self, query: int) -> tuple[str, ...]:
        """The ids of a query's documents, in their order; a document i without an id, from 0, gets `query_id-i`."""
        start, stop = int(self.starts[query]), int(self.stops[query])
        ids = enumerate(self.ids[start:stop].tolist())
        return tuple(doc_id.decode() or f"{self.query_ids[query]}-{i}" for i, doc_id in ids)

    def qrels(self) -> Qrels:
        """The labels of the documents, by query."""
        return {
            query_id: dict(zip(self.doc_ids(query), self.labels[start:stop].tolist(), strict=True))
            for query, (query_id, start, stop) in enumerate(zip(self.query_ids, self.starts, self.stops, strict=True))
        }

    def subset(self, query_ids: Sequence[str]) -> "FeatureSet":
        """The set of these queries, in this order; no vector is copied. Raises KeyError for an unknown query."""
        numbers = {query_id: number for number, query_id in enumerate(self.query_ids)}
        rows = np.array([numbers[query_id] for query_id in query_ids], dtype=np.int64)
        return replace(self, starts=self.starts[rows], stops=self.stops[rows], query_ids=tuple(query_ids))


class Store(NamedTuple):
    """The queries of all files of a fold, the query ids of each part in turn, and the SHA-256 of each file by name."""

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


def _load(folder: Path) -> Store:
    remedy = f"remove {folder} and run again"
    if changed := changes_since_record(folder):
        raise UserError(f"{folder}: the stored features have changed ({'; '.join(changed)}); {remedy}")
    names = ("features", "labels", "offsets", "doc_ids")
    features, labels, offsets, doc_ids = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in names)
    facts = read_json(folder / FACTS, dict[str, dict[str, Any]], remedy)
    query_ids = {part: tuple(some) for part, some in facts["query_ids"].items()}
    all_ids = tuple(chain.from_iterable(query_ids.values()))
    documents = FeatureSet(features, labels, offsets[:-1], offsets[1:], all_ids, doc_ids)
    return Store(documents, query_ids, facts["checksums"])


def _write(folder: Path, files: Mapping[str, Path]) -> None:
    """Parses the files of each part into `folder`.

    The features are numbered from 0 if a document has feature 0, else from 1. features.npy: (documents, features)
    float32; labels.npy: (documents,) int32; offsets.npy: int64, the first row of each query, and the number of rows;
    doc_ids.npy: (documents,) bytes. Raises UserError with file and line for malformed text, and for a file without a
    document or a feature.
    """
    with atomic_write(folder) as tmp:
        tmp.mkdir()
        blocks = tmp / "blocks.bin"
        with blocks.open("wb") as file:
            documents = _Documents(file)
            query_ids = {part: documents.read(path) for part, path in files.items()}
        _write_features(tmp / "features.npy", blocks, documents)
        blocks.unlink()
        write_array(tmp / "labels.npy", np.concatenate(documents.labels))
        write_array(tmp / "offsets.npy", np.array([*documents.starts, documents.rows], np.int64))
        write_array(tmp / "doc_ids.npy", np.concatenate(documents.doc_ids))
        facts = {"query_ids": query_ids, "checksums": {file.name: file_hash(file) for file in files.values()}}
        (tmp / FACTS).write_text(json.dumps(facts), encoding="utf-8")
        write_record(tmp)
        found = _load(tmp).features
        for query, query_id in enumerate(found.query_ids if (found.ids != b"").any() else ()):
            ((doc_id, count),) = Counter(found.doc_ids(query)).most_common(1)
            if count > 1:  # no run can hold both
                where = ", ".join(map(str, files.values()))
                raise UserError(f"{where}: expected a document once in a query, got {doc_id} of query {query_id} again")


class _Documents:
    """The documents of the files read so far; their features are in `file`, block by block.

    How many features a row needs is known at the end: those of a block are from 0 to its largest one. `first_lines` has
    the place of the first document of each query.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.blocks: list[tuple[int, int]] = []  # rows and width of each
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
        places, step = np.repeat(np.arange(rows), lines.sizes), VALUES_AT_A_TIME // max(1, width)
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


def _write_features(out: Path, blocks: Path, documents: _Documents) -> None:
    """Writes the features of all documents, 0 where a line has none, block by block."""
    first, width = documents.first_feature, documents.width
    header = {"descr": "<f4", "fortran_order": False, "shape": (documents.rows, width - first)}
    with blocks.open("rb") as parts, out.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for rows, own in documents.blocks:
            features = np.fromfile(parts, np.float32, rows * own).reshape(rows, own)
            file.write(np.pad(features, ((0, 0), (0, width - own)))[:, first:].tobytes())
