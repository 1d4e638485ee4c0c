"""Writes the lines of a data set, as they are parsed, into the files of its store, in bounded memory."""

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rerank.data.arrays import write_array
from rerank.data.letor.blocks import HashedFile, blocks
from rerank.data.letor.line_errors import INDEX_FROM_1, LINE, LineError, quote
from rerank.data.letor.parser import Lines, parse
from rerank.utils.errors import UserError
from rerank.utils.processes import ordered_map
from rerank.utils.progress import progress

VALUES_AT_A_TIME = 2**22


class FeatureZeroError(UserError):
    """A feature has index 0, in a text that was read with indices from 1."""


class _Documents:
    """The documents written so far: their queries, their ids and the width of their rows.

    `counted` has the first row of each query and the end, if a side file counts them.
    """

    def __init__(self, path: Path, counted: np.ndarray | None, features: BinaryIO, labels: BinaryIO, ids: BinaryIO):
        self.path, self.counted = path, counted
        self.features, self.labels, self.ids = features, labels, ids
        self.lines = self.rows = self.id_bytes = 0
        self.named = False
        self.layout: list[list[int]] = []
        self.first_line: dict[str, int] = {}
        self.starts: list[int] = []
        self.id_starts: list[int] = []
        self.query = ""
        self.names: set[bytes] | None = None

    def add(self, lines: Lines | LineError) -> None:
        """Writes the documents of the next lines. Raises UserError for an invalid line and for a repeated document."""
        if isinstance(lines, LineError):
            hint = f" (or a {side_file(self.path).name} beside it)" if lines.expected.startswith("qid:") else ""
            place = f"{self.path}:{self.lines + lines.line + 1}"
            error = FeatureZeroError if lines.expected == INDEX_FROM_1 else UserError
            raise error(f"{place}: expected {lines.expected}{hint}, got {lines.got}")
        queries = lines.queries if self.counted is None else self._count_queries(lines)
        self._write_features(lines)
        self.labels.write(lines.labels.data)
        self._write_ids(lines, queries)
        self.lines += lines.length
        self.rows += len(lines.labels)

    def _count_queries(self, lines: Lines) -> list[tuple[int, str]]:
        """The queries of rows whose queries a side file counts; their ids are 1, 2, …"""
        assert self.counted is not None
        end = self.rows + len(lines.labels)
        if end > self.counted[-1]:
            line = self._line(lines, int(self.counted[-1]) - self.rows)
            raise UserError(
                f"{line}: expected the end after {self.counted[-1]:,} documents, the sum of {side_file(self.path)}, "
                "got another document"
            )
        first = int(np.searchsorted(self.counted, self.rows, side="right")) - 1
        last = int(np.searchsorted(self.counted, end, side="left"))
        return [(max(0, int(self.counted[i]) - self.rows), str(i + 1)) for i in range(first, last)]

    def _write_features(self, lines: Lines) -> None:
        width = max(lines.width, self.layout[-1][1] if self.layout else 0)
        if not self.layout or self.layout[-1][1] < width:
            self.layout.append([0, width])
        rows = len(lines.labels)
        self.layout[-1][0] += rows
        if lines.indices is None and lines.width == width:
            self.features.write(lines.values.data)
            return
        columns = np.tile(np.arange(lines.width), rows) if lines.indices is None else lines.indices - 1
        ends = np.concatenate([[0], np.cumsum(lines.sizes, dtype=np.int64)])
        for begin in range(0, rows, step := max(1, VALUES_AT_A_TIME // max(1, width))):
            sizes = lines.sizes[begin : begin + step]
            span = slice(ends[begin], ends[begin + len(sizes)])
            dense = np.zeros((len(sizes), width), np.float32)
            dense[np.repeat(np.arange(len(sizes)), sizes), columns[span]] = lines.values[span]
            self.features.write(dense.data)

    def _write_ids(self, lines: Lines, queries: list[tuple[int, str]]) -> None:
        rows = len(lines.labels)
        doc_ids = lines.doc_ids or [b""] * rows
        places = np.concatenate([[0], np.cumsum([len(doc_id) + 1 for doc_id in doc_ids], dtype=np.int64)])
        self.named = self.named or lines.doc_ids is not None
        ends = [*(row for row, _ in queries), rows][1:]
        for (begin, query_id), end in zip(queries, ends, strict=True):
            if query_id != self.query or not self.first_line:
                self._begin(query_id, self.rows + begin, self.id_bytes + int(places[begin]), self._line(lines, begin))
            if lines.doc_ids is not None or self.names is not None:
                self._check_names(lines, doc_ids, begin, end)
        self.ids.write(b"\n".join([*doc_ids, b""]))
        self.id_bytes += int(places[-1])

    def _begin(self, query_id: str, row: int, id_byte: int, line: str) -> None:
        if query_id in self.first_line:
            raise UserError(
                f"{line}: expected all lines of query {query_id} together, from line {self.first_line[query_id]:,} on; "
                f"got one after query {self.query}"
            )
        self.first_line[query_id] = int(line.rpartition(":")[2])
        self.starts.append(row)
        self.id_starts.append(id_byte)
        self.query, self.names = query_id, None

    def _check_names(self, lines: Lines, doc_ids: list[bytes], begin: int, end: int) -> None:
        """Raises UserError for an id that another document of the query has; no run can hold both."""
        query = self.query.encode()
        before = self.rows + begin - self.starts[-1]
        seen = {b"%s-%d" % (query, i) for i in range(before)} if self.names is None else self.names
        names = [doc_ids[row] or b"%s-%d" % (query, before + row - begin) for row in range(begin, end)]
        self.names = seen.union(names)
        if len(self.names) < len(seen) + len(names):
            for row, name in enumerate(names, begin):
                if name in seen:
                    raise UserError(
                        f"{self._line(lines, row)}: expected a document once in a query, got document {name.decode()} "
                        f"of query {self.query} again"
                    )
                seen.add(name)

    def _line(self, lines: Lines, row: int) -> str:
        return f"{self.path}:{self.lines + int(lines.numbers[row]) + 1}"


def write(folder: Path, path: Path, file: HashedFile, first: int) -> dict[str, Any]:
    """Parses the text file `path`, opened as `file`, into files in `folder`; returns rows, width, layout and sha256.

    The text numbers the features from `first`, 0 or 1.

    features.bin: float32, as many rows of each width as `layout` says; labels.bin: int32; offsets.npy: (2, queries + 1)
    int64, where the rows and the id lines of each query begin; queries.txt: query ids; doc_ids.txt: as in
    FeatureSet.id_lines. Raises UserError with file and line for malformed text, and for a file without a document or a
    feature.
    """
    counted = _read_side_file(path)
    with ExitStack() as stack:
        names = ("features.bin", "labels.bin", "doc_ids.txt")
        outputs = [stack.enter_context((folder / name).open("wb")) for name in names]
        documents = _Documents(path, counted, *outputs)
        parsed = stack.enter_context(closing(ordered_map(parse, blocks(path, file), counted is None, first)))
        steps, size = _write_all(parsed, documents, file), path.stat().st_size >> 20
        deque(progress(steps, size, f"reading {path.parent.name}/{path.name}, MiB"), maxlen=0)
        checksum = file.sha256()
    if not documents.rows:
        raise UserError(f"{path}:{documents.lines + 1}: expected a document, as in `{LINE}`, got the end of the file")
    if not documents.layout[-1][1]:
        raise UserError(f"{path}:{documents.lines + 1}: expected a document with a feature, got the end of the file")
    if counted is not None and documents.rows < counted[-1]:
        raise UserError(
            f"{side_file(path)}: expected sizes that sum to {documents.rows:,}, the documents of {path.name}, "
            f"got {counted[-1]:,}"
        )
    if not documents.named:
        (folder / "doc_ids.txt").unlink()
    offsets = [[*documents.starts, documents.rows], [*documents.id_starts, documents.id_bytes]]
    write_array(folder / "offsets.npy", np.array(offsets, dtype=np.int64))
    (folder / "queries.txt").write_text("\n".join(documents.first_line), encoding="utf-8", newline="\n")
    return {"rows": documents.rows, "width": documents.layout[-1][1], "layout": documents.layout, "sha256": checksum}


def _write_all(parsed: Iterator[Lines | LineError], documents: _Documents, file: HashedFile) -> Iterator[None]:
    """Writes all documents; yields once for each MiB of the file, for the progress bar."""
    reported = 0
    for lines in parsed:
        documents.add(lines)
        for _ in range(reported, file.position >> 20):
            reported += 1
            yield


def side_file(path: Path) -> Path:
    """LightGBM's file with the number of documents of each query."""
    return path.with_name(path.name.removesuffix(".gz") + ".query")


def _read_side_file(path: Path) -> np.ndarray | None:
    """The first row of each query, and the number of rows; None if there is no side file."""
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
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
