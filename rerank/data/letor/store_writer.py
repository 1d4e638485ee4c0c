"""Writes the documents of text files, as they are parsed, into the files of a store, in bounded memory."""

import gzip
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rerank.data import text_lines
from rerank.data.letor.feature_set import FeatureSet
from rerank.data.letor.line_errors import INDEX_FROM_1, LINE, LineError, quote
from rerank.data.letor.parser import Lines, parse
from rerank.utils.errors import UserError
from rerank.utils.processes import ordered_map
from rerank.utils.progress import progress

BLOCK = 4 * 2**20
"""Bytes of text that are parsed at a time."""
LONGEST_LINE = 4 * 2**20
VALUES_AT_A_TIME = 2**22


class FeatureZeroError(UserError):
    """A feature has index 0, in a text that was read with indices from 1."""


def write_documents(folder: Path, files: Mapping[str, Path], first: int = 1) -> dict[str, Any]:
    """Parses the files of each part into `folder`; returns query_ids, width and id_bytes as `Facts` has them.

    The text numbers the features from `first`, 0 or 1. features.bin: float32, row by row; labels.bin: int32;
    offsets.bin: int64, the first row of each query, and the number of rows; doc_ids.bin: bytes, if a document has an
    id. Raises UserError with file and line for malformed text, and for a file without a document or a feature.
    """
    with (folder / "features.bin").open("wb") as out:
        documents = _Documents(out)
        query_ids = {part: documents.read(path, part, first) for part, path in files.items()}
    _make_one_width(folder / "features.bin", documents.layout, documents.width)
    labels, ids = np.concatenate(documents.labels), np.concatenate(documents.doc_ids)
    offsets = np.array([*documents.starts, documents.rows], np.int64)
    (folder / "labels.bin").write_bytes(labels.data)
    (folder / "offsets.bin").write_bytes(offsets.data)
    named = bool((ids != b"").any())
    if named:
        every = tuple(documents.first_lines)
        documents.expect_distinct(FeatureSet(labels, labels, offsets[:-1], offsets[1:], every, ids))
        (folder / "doc_ids.bin").write_bytes(ids.data)
    return {"query_ids": query_ids, "width": documents.width, "id_bytes": ids.itemsize if named else 0}


class _Documents:
    """The documents of the files read so far.

    Their features are in `out`: `layout` has numbers of rows and their widths. `first_lines` has the file and the line
    of the first document of each query.
    """

    def __init__(self, out: BinaryIO) -> None:
        self.out = out
        self.layout: list[tuple[int, int]] = []
        self.labels: list[np.ndarray] = []
        self.doc_ids: list[np.ndarray] = []
        self.lines: list[tuple[Path, np.ndarray]] = []
        self.starts: list[int] = []
        self.first_lines: dict[str, tuple[Path, int]] = {}
        self.rows = self.width = 0
        self.query: str | None = None

    def read(self, path: Path, part: str, first: int) -> list[str]:
        """Adds the documents of a file; returns the ids of its queries."""
        sizes = _read_side_file(path)
        queries, rows, number = len(self.starts), self.rows, 0
        self.query = None
        what, blocks = f"reading {path.parent.name}/{path.name}", -(-text_lines.size_of_text(path) // BLOCK)
        with closing(ordered_map(parse, _blocks(path), sizes is None, first)) as parsed:
            for lines in progress(parsed, blocks, what):
                if isinstance(lines, LineError):
                    raise _line_error(path, number, lines)
                self._add(lines, path, number)
                number += lines.length
        if self.rows == rows:
            raise UserError(f"{path}:{number + 1}: expected a document, as in `{LINE}`, got the end of the file")
        if not self.width:
            raise UserError(f"{path}:{number + 1}: expected a document with a feature, got the end of the file")
        if sizes is not None:
            if sizes.sum() != self.rows - rows:
                raise UserError(
                    f"{side_file(path)}: expected sizes that sum to {self.rows - rows:,}, the documents of "
                    f"{path.name}, got {sizes.sum():,}"
                )
            prefix = "" if part == "all" else f"{part}-"  # so that no two files have queries of the same id
            for query, start in enumerate((rows + np.cumsum(sizes) - sizes).tolist(), 1):
                self._begin(f"{prefix}{query}", start, path, 0)
        return list(self.first_lines)[queries:]

    def _add(self, lines: Lines, path: Path, number: int) -> None:
        numbers = lines.numbers + (number + 1)
        for row, query_id in lines.queries:
            if query_id != self.query:
                self._begin(query_id, self.rows + row, path, int(numbers[row]))
        self._write_features(lines)
        self.labels.append(lines.labels)
        self.doc_ids.append(np.array(lines.doc_ids) if lines.doc_ids else np.zeros(len(numbers), "S1"))
        self.lines.append((path, numbers))
        self.rows += len(numbers)

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

    def _write_features(self, lines: Lines) -> None:
        rows, self.width = len(lines.labels), max(self.width, lines.width)
        self.layout.append((rows, self.width))
        if lines.indices is None and lines.width == self.width:
            self.out.write(lines.values.data)
            return
        columns = np.tile(np.arange(lines.width), rows) if lines.indices is None else lines.indices - 1
        ends = np.concatenate([[0], np.cumsum(lines.sizes, dtype=np.int64)])
        for begin in range(0, rows, step := max(1, VALUES_AT_A_TIME // max(1, self.width))):
            sizes = lines.sizes[begin : begin + step]
            span = slice(ends[begin], ends[begin + len(sizes)])
            dense = np.zeros((len(sizes), self.width), np.float32)
            dense[np.repeat(np.arange(len(sizes)), sizes), columns[span]] = lines.values[span]
            self.out.write(dense.data)

    def expect_distinct(self, documents: FeatureSet) -> None:
        """Raises UserError for a document that a query has twice: no run can hold both."""
        for query, query_id in enumerate(documents.query_ids):
            doc_ids = documents.doc_ids(query)
            if len(set(doc_ids)) == len(doc_ids):
                continue
            place, doc_id = next((i, doc_id) for i, doc_id in enumerate(doc_ids) if doc_id in doc_ids[:i])
            row = int(documents.starts[query]) + place
            for path, numbers in self.lines:
                if row < len(numbers):
                    raise UserError(
                        f"{path}:{numbers[row]}: expected a document once in a query, got document {doc_id} of query "
                        f"{query_id} again"
                    )
                row -= len(numbers)


def _make_one_width(file: Path, layout: list[tuple[int, int]], width: int) -> None:
    """Writes the features again if the first rows are narrower than a later one."""
    if all(narrow == width for _, narrow in layout):
        return
    old = file.rename(file.with_name("narrow.bin"))
    with old.open("rb") as source, file.open("wb") as out:
        for rows, narrow in layout:
            for begin in range(0, rows, step := max(1, VALUES_AT_A_TIME // width)):
                wide = np.zeros((min(step, rows - begin), width), np.float32)
                wide[:, :narrow] = np.fromfile(source, np.float32, len(wide) * narrow).reshape(len(wide), narrow)
                out.write(wide.data)
    old.unlink()


def _blocks(path: Path) -> Iterator[bytes]:
    """The text in blocks of whole lines. Raises UserError for a damaged file and for a line that is too long."""
    with text_lines.gzip_error_in_one_line(path), path.open("rb") as file:
        text = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        yield from text_lines.blocks(text, path, f"`{LINE}`", LONGEST_LINE, BLOCK)


def _line_error(path: Path, lines: int, error: LineError) -> UserError:
    hint = f" (or a {side_file(path).name} beside it)" if error.expected.startswith("qid:") else ""
    kind = FeatureZeroError if error.expected == INDEX_FROM_1 else UserError
    return kind(f"{path}:{lines + error.line + 1}: expected {error.expected}{hint}, got {error.got}")


def side_file(path: Path) -> Path:
    """LightGBM's file with the number of documents of each query."""
    return path.with_name(path.name.removesuffix(".gz") + ".query")


def _read_side_file(path: Path) -> np.ndarray | None:
    """The number of documents of each query; None if there is no side file."""
    side = side_file(path)
    if not side.is_file():
        return None
    sizes = []
    for number, line in enumerate(side.read_bytes().rstrip().split(b"\n"), 1):
        word = line.strip()
        # Python converts 4,300 digits at most.
        size = int(word) if word.isdigit() and len(word) < 20 else 0
        if not 0 < size < 2**31:
            raise UserError(f"{side}:{number}: expected the number of documents of a query, got {quote(word)}")
        sizes.append(size)
    return np.array(sizes, np.int64)
