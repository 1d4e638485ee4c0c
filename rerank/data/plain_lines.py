"""Lines of runs and judgments in the plain form, which pyarrow reads: one blank between columns, nothing but columns.

What these readers take, those of `rerank.data.trec_columns` read in the same way; the reverse is not so.
"""

import codecs
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv

from rerank.data.arrow_arrays import from_texts, to_numpy
from rerank.data.run_scores import FLOAT32_MAX
from rerank.data.trec_columns import whole_number

BLANKS = bytes.maketrans(b"\t\r\v\f", b"    ")
RUN = ["query", "", "document", "", "score", ""]
JUDGMENTS = {3: ["query", "document", "grade"], 4: ["query", "", "document", "grade"]}
"""The columns by their number; those without a name are not read."""
TYPES = {"query": pa.binary(), "document": pa.binary(), "score": pa.float64(), "grade": pa.binary()}


class RunColumns(NamedTuple):
    """Lines of a run: ids as binary arrays, scores as (lines,) float32."""

    queries: pa.Array
    documents: pa.Array
    scores: np.ndarray

    @property
    def size(self) -> int:
        """Bytes of the arrays, about."""
        return int(self.queries.nbytes + self.documents.nbytes + self.scores.nbytes)

    def from_line(self, begin: int) -> "RunColumns":
        """The lines from number `begin` on, counted from 0."""
        return RunColumns(self.queries[begin:], self.documents[begin:], self.scores[begin:])


class JudgmentColumns(NamedTuple):
    """Lines of judgments: ids as binary arrays, grades as (lines,) int32 places in `distinct_grades`."""

    queries: pa.Array
    documents: pa.Array
    grades: np.ndarray
    distinct_grades: list[int]


def plain_run(block: bytes) -> RunColumns | None:
    """The columns of whole lines of a run, or None if not all are in the plain form, or one is malformed."""
    columns = _columns(block, RUN)
    if columns is None:
        return None
    scores = to_numpy(columns["score"], np.float64)
    if not (np.abs(scores) <= FLOAT32_MAX).all():
        return None
    return RunColumns(columns["query"], columns["document"], scores.astype(np.float32))


def plain_judgments(block: bytes, width: int) -> JudgmentColumns | None:
    """The same of judgments with so many columns."""
    columns = _columns(block, JUDGMENTS[width])
    if columns is None:
        return None
    grades, texts = encoded(columns["grade"])
    try:
        distinct = [whole_number(text) for text in texts.to_pylist()]
    except ValueError:
        return None
    return JudgmentColumns(columns["query"], columns["document"], grades, distinct)


def run_columns(lines: list[tuple[str, str, float]]) -> RunColumns:
    """The columns of lines that were read one by one: query, document and score."""
    queries, documents, scores = zip(*lines, strict=True)
    return RunColumns(*_binary(queries, documents), np.array(scores, np.float64).astype(np.float32))


def judgment_columns(lines: list[tuple[str, str, int]]) -> JudgmentColumns:
    """The same of judgments: query, document and relevance."""
    queries, documents, grades = zip(*lines, strict=True)
    places = {grade: place for place, grade in enumerate(dict.fromkeys(grades))}
    codes = np.array([places[grade] for grade in grades], np.int32)
    return JudgmentColumns(*_binary(queries, documents), codes, list(places))


def joined(parts: list[RunColumns]) -> RunColumns:
    """The lines of all parts, of which there is at least one."""
    queries, documents = (pa.concat_arrays([part[place] for part in parts]) for place in (0, 1))
    return RunColumns(queries, documents, np.concatenate([part.scores for part in parts]))


def encoded(ids: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """The int32 number of each id, and the distinct ids, in the order in which they first occur."""
    found = ids.dictionary_encode()
    return to_numpy(found.indices, np.int32), found.dictionary


def _columns(block: bytes, names: list[str]) -> dict[str, pa.Array] | None:
    text = block.replace(b"\r\n", b"\n") if b"\r" in block else block
    text = text.translate(BLANKS)
    if b"\0" in text or text.startswith((b" ", b"\n", b"#", codecs.BOM_UTF8)) or text.endswith(b" "):
        return None
    blank = np.frombuffer(text, np.uint8) <= ord(" ")
    if (blank[1:] & blank[:-1]).any() or (b"#" in text and b"\n#" in text) or not _is_unicode(text):
        return None
    unique = [name or str(place) for place, name in enumerate(names)]
    read = [name for name in names if name]
    try:
        table = csv.read_csv(
            pa.py_buffer(text),
            csv.ReadOptions(use_threads=False, column_names=unique, block_size=len(text) + 1),
            csv.ParseOptions(delimiter=" ", quote_char=False, double_quote=False, ignore_empty_lines=False),
            csv.ConvertOptions(
                column_types={name: TYPES[name] for name in read},
                include_columns=read,
                null_values=[],
                check_utf8=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    return {name: table[name].combine_chunks() for name in read}


def _binary(*columns: Sequence[str]) -> tuple[pa.Array, pa.Array]:
    queries, documents = (from_texts(texts, pa.binary()) for texts in columns)
    return queries, documents


def _is_unicode(text: bytes) -> bool:
    try:
        return text.isascii() or bool(text.decode())
    except UnicodeDecodeError:
        return False
