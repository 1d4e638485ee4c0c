"""Lines in the plain form of a run, which pyarrow reads: columns apart by one blank, no comments, no empty lines."""

import codecs
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv

from rerank.data.run_scores import FLOAT32_MAX

BLANKS = bytes.maketrans(b"\t\r\v\f", b"    ")
COLUMNS = ["query", "iteration", "document", "rank", "score", "tag"]
PARSING = csv.ParseOptions(delimiter=" ", quote_char=False, double_quote=False, ignore_empty_lines=False)
CONVERSION = csv.ConvertOptions(
    column_types={"query": pa.binary(), "document": pa.binary(), "score": pa.float64()},
    include_columns=["query", "document", "score"],
    null_values=[],
    check_utf8=False,
)


class RunColumns(NamedTuple):
    """Lines of a run: ids as binary arrays, scores as (lines,) float32."""

    queries: pa.Array
    documents: pa.Array
    scores: np.ndarray

    @property
    def size(self) -> int:
        """Bytes of the arrays, about."""
        return self.queries.nbytes + self.documents.nbytes + self.scores.nbytes

    def from_line(self, begin: int) -> "RunColumns":
        """The lines from number `begin` on, counted from 0."""
        return RunColumns(self.queries[begin:], self.documents[begin:], self.scores[begin:])


def plain_columns(block: bytes) -> RunColumns | None:
    """The columns of whole lines of a run, or None if not all are in the plain form, or one is malformed.

    What it takes `rerank.data.trec_columns.run_lines` reads in the same way; the reverse is not so.
    """
    text = block.replace(b"\r\n", b"\n") if b"\r" in block else block
    text = text.translate(BLANKS)
    if b"\0" in text or text.startswith((b" ", b"\n", b"#", codecs.BOM_UTF8)) or text.endswith(b" "):
        return None
    blank = np.frombuffer(text, np.uint8) <= ord(" ")
    if (blank[1:] & blank[:-1]).any() or (b"#" in text and b"\n#" in text) or not _is_unicode(text):
        return None
    try:
        reading = csv.ReadOptions(use_threads=False, column_names=COLUMNS, block_size=len(text) + 1)
        table = csv.read_csv(pa.py_buffer(text), reading, PARSING, CONVERSION)
    except pa.ArrowInvalid:
        return None
    scores = table["score"].to_numpy()
    if not (np.abs(scores) <= FLOAT32_MAX).all():
        return None
    queries, documents = (table[name].combine_chunks() for name in ("query", "document"))
    return RunColumns(queries, documents, scores.astype(np.float32))


def columns_of(lines: list[tuple[str, str, float]]) -> RunColumns:
    """The columns of lines that are read one by one: query, document and score."""
    queries, documents = (pa.array([line[place].encode() for line in lines], pa.binary()) for place in (0, 1))
    return RunColumns(queries, documents, np.array([line[2] for line in lines], np.float64).astype(np.float32))


def joined(parts: list[RunColumns]) -> RunColumns:
    """The lines of all parts, of which there is at least one."""
    queries, documents = (pa.concat_arrays([part[place] for part in parts]) for place in (0, 1))
    return RunColumns(queries, documents, np.concatenate([part.scores for part in parts]))


def _is_unicode(text: bytes) -> bool:
    try:
        return text.isascii() or bool(text.decode())
    except UnicodeDecodeError:
        return False
