"""Lines of a data set, as they are read -> the files of its store, in bounded memory."""

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rerank.data.letor.blocks import HashedFile, blocks
from rerank.data.letor.line_errors import LINE, Mistake, shown
from rerank.data.letor.parser import Lines, parse
from rerank.errors import UserError
from rerank.utils.processes import ordered_map
from rerank.utils.progress import progress

VALUES_AT_A_TIME = 2**22


class _Documents:
    """The documents written so far: which queries they belong to, what they are called, how wide their rows are."""

    def __init__(self, path: Path, starts: np.ndarray | None, features: BinaryIO, labels: BinaryIO, ids: BinaryIO):
        self.path, self.starts = path, starts
        self.features, self.labels, self.ids = features, labels, ids
        self.lines = self.rows = self.id_bytes = 0
        self.named = False
        self.layout: list[list[int]] = []
        self.first_line: dict[str, int] = {}
        self.begins: list[int] = []
        self.id_begins: list[int] = []
        self.query = ""
        self.seen: set[bytes] | None = None

    def add(self, lines: Lines | Mistake) -> None:
        """Writes the documents of the next lines; raises UserError for one that is wrong or a repetition."""
        if isinstance(lines, Mistake):
            hint = f" (or a {side_file(self.path).name} beside it)" if lines.expected.startswith("qid:") else ""
            place = f"{self.path}:{self.lines + lines.line + 1}"
            raise UserError(f"{place}: expected {lines.expected}{hint}, got {lines.got}")
        runs = lines.queries if self.starts is None else self._counted(lines)
        self._write_features(lines)
        self.labels.write(lines.labels.data)
        self._write_ids(lines, runs)
        self.lines += lines.length
        self.rows += len(lines.labels)

    def _counted(self, lines: Lines) -> list[tuple[int, str]]:
        """The queries of rows whose queries are counted in a file of their own; they are called 1, 2, …"""
        assert self.starts is not None
        end = self.rows + len(lines.labels)
        if end > self.starts[-1]:
            line = self._line(lines, int(self.starts[-1]) - self.rows)
            raise UserError(
                f"{line}: expected the end after {self.starts[-1]:,} documents, the sum of {side_file(self.path)}, "
                "got another document"
            )
        first = int(np.searchsorted(self.starts, self.rows, side="right")) - 1
        last = int(np.searchsorted(self.starts, end, side="left"))
        return [(max(0, int(self.starts[i]) - self.rows), str(i + 1)) for i in range(first, last)]

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
            here = slice(ends[begin], ends[begin + len(sizes)])
            dense = np.zeros((len(sizes), width), np.float32)
            dense[np.repeat(np.arange(len(sizes)), sizes), columns[here]] = lines.values[here]
            self.features.write(dense.data)

    def _write_ids(self, lines: Lines, runs: list[tuple[int, str]]) -> None:
        rows = len(lines.labels)
        doc_ids = lines.doc_ids or [b""] * rows
        places = np.concatenate([[0], np.cumsum([len(doc_id) + 1 for doc_id in doc_ids], dtype=np.int64)])
        self.named = self.named or lines.doc_ids is not None
        ends = [*(row for row, _ in runs), rows][1:]
        for (begin, query_id), end in zip(runs, ends, strict=True):
            if query_id != self.query or not self.first_line:
                self._begin(query_id, self.rows + begin, self.id_bytes + int(places[begin]), self._line(lines, begin))
            if lines.doc_ids is not None or self.seen is not None:
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
        self.begins.append(row)
        self.id_begins.append(id_byte)
        self.query, self.seen = query_id, None

    def _check_names(self, lines: Lines, doc_ids: list[bytes], begin: int, end: int) -> None:
        """Raises UserError for a document that its query has already; a run could not hold both."""
        query = self.query.encode()
        before = self.rows + begin - self.begins[-1]
        seen = {b"%s-%d" % (query, i) for i in range(before)} if self.seen is None else self.seen
        names = [doc_ids[row] or b"%s-%d" % (query, before + row - begin) for row in range(begin, end)]
        self.seen = seen.union(names)
        if len(self.seen) < len(seen) + len(names):
            for row, name in enumerate(names, begin):
                if name in seen:
                    raise UserError(
                        f"{self._line(lines, row)}: expected a document once in a query, got document {name.decode()} "
                        f"of query {self.query} again"
                    )
                seen.add(name)

    def _line(self, lines: Lines, row: int) -> str:
        return f"{self.path}:{self.lines + int(lines.numbers[row]) + 1}"


def write(folder: Path, path: Path, file: HashedFile) -> dict[str, Any]:
    """Reads the text file `path`, opened as `file`, into files in `folder`; what is to be known of them.

    features.bin: float32, rows of the widths that `layout` has; labels.bin: int32; offsets.npy: (2, queries + 1) int64,
    where a query's rows and the lines of its ids begin; queries.txt: query ids; doc_ids.txt: as in FeatureSet.id_lines.
    Raises UserError with file and line for what is wrong in the text, and for a file without a document or a feature.
    """
    starts = _starts(path)
    with ExitStack() as stack:
        names = ("features.bin", "labels.bin", "doc_ids.txt")
        outputs = [stack.enter_context((folder / name).open("wb")) for name in names]
        documents = _Documents(path, starts, *outputs)
        parsed = stack.enter_context(closing(ordered_map(parse, blocks(path, file), starts is None)))
        work, size = _read(parsed, documents, file), path.stat().st_size >> 20
        deque(progress(work, size, f"reading {path.parent.name}/{path.name}, MiB"), maxlen=0)
        checksum = file.sha256()
    if not documents.rows:
        raise UserError(f"{path}:{documents.lines + 1}: expected a document, as in `{LINE}`, got the end of the file")
    if not documents.layout[-1][1]:
        raise UserError(f"{path}:{documents.lines + 1}: expected a document with a feature, got the end of the file")
    if starts is not None and documents.rows < starts[-1]:
        raise UserError(
            f"{side_file(path)}: expected sizes that sum to {documents.rows:,}, the documents of {path.name}, "
            f"got {starts[-1]:,}"
        )
    if not documents.named:
        (folder / "doc_ids.txt").unlink()
    offsets = [[*documents.begins, documents.rows], [*documents.id_begins, documents.id_bytes]]
    np.save(folder / "offsets.npy", np.array(offsets, dtype=np.int64))
    (folder / "queries.txt").write_text("\n".join(documents.first_line), encoding="utf-8", newline="\n")
    return {"rows": documents.rows, "width": documents.layout[-1][1], "layout": documents.layout, "sha256": checksum}


def _read(parsed: Iterator[Lines | Mistake], documents: _Documents, file: HashedFile) -> Iterator[None]:
    """Writes everything, and stops for each MiB of the file."""
    told = 0
    for lines in parsed:
        documents.add(lines)
        for _ in range(told, file.done >> 20):
            told += 1
            yield


def side_file(path: Path) -> Path:
    """LightGBM's file with the number of documents of each query."""
    return path.with_name(path.name.removesuffix(".gz") + ".query")


def _starts(path: Path) -> np.ndarray | None:
    """Where each query begins and the last ends, by the side file; None where there is none."""
    side = side_file(path)
    if not side.is_file():
        return None
    sizes = []
    for number, line in enumerate(side.read_bytes().rstrip().split(b"\n"), 1):
        word = line.strip()
        if not (word.isdigit() and 0 < int(word) < 2**31):
            raise UserError(f"{side}:{number}: expected the number of documents of a query, got {shown(word)}")
        sizes.append(int(word))
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
