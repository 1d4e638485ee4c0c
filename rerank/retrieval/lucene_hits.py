"""The hits of Lucene as Anserini gives them: ids, and scores without ties."""

import functools
from typing import Any

import msgspec
import numpy as np

from rerank.retrieval.java import java_class

STEP, SHIFT = np.float32(1e-4), np.float32(1e-6)
"""Scores are rounded to whole steps; one that is not a step below the one before is shifted."""


class Id(msgspec.Struct):
    """Lucene's BytesRef: the id is `bytes[offset : offset + length]`."""

    bytes: bytes
    offset: int
    length: int


class Hit(msgspec.Struct):
    """Lucene's FieldDoc; `fields` are what the hits are sorted by, the score and the id."""

    fields: tuple[float, Id]


class Hits(msgspec.Struct):
    """Lucene's TopFieldDocs."""

    scoreDocs: list[Hit]  # noqa: N815 - the name in Java


def hits_of(top: Any) -> dict[str, float]:
    """doc_id -> score of the hits of a Lucene search that sorts ties by id, best first.

    All hits come from Java as one text: a call for each of them takes longer than the search.
    """
    hits = msgspec.json.decode(_writer().writeValueAsString(top), type=Hits).scoreDocs
    ids = [hit.fields[1] for hit in hits]
    scores = without_ties(np.array([hit.fields[0] for hit in hits], np.float32))
    doc_ids = (found.bytes[found.offset : found.offset + found.length].decode() for found in ids)
    return dict(zip(doc_ids, scores.tolist(), strict=True))


@functools.cache
def _writer() -> Any:
    return java_class("com.fasterxml.jackson.databind.ObjectMapper")()


def without_ties(scores: np.ndarray) -> np.ndarray:
    """(hits,) float32 scores, descending, as Anserini's ScoreTiesAdjusterReranker rounds them and moves ties apart.

    >>> without_ties(np.array([22.087432, 22.087432, 21.602508], np.float32)).tolist()
    [22.087400436401367, 22.087398529052734, 21.602500915527344]
    """
    rounded: np.ndarray = (np.floor(scores.astype(np.float64) * 1e4 + 0.5) / 1e4).astype(np.float32)
    tied = 0
    for place in range(1, len(rounded)):
        if rounded[place - 1] - rounded[place] > STEP:
            tied = 0
        else:
            tied += 1
            rounded[place] -= SHIFT * np.float32(tied)
    return rounded
