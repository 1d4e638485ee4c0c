"""A collection of any size and its vectors, made of real ones: documents are repeated with other words in them.

A copy of a document has the vectors of the original with noise of the length of a distance between neighbours, so that
vectors lie as densely as real ones, and none of the copies needs to be encoded.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from rerank.data.collections import open_collection
from rerank.data.types import Document
from rerank.models.bi_encoder import BiEncoder
from rerank.utils.progress import progress

CHANGED = 0.15
"""The share of words of a copy that are drawn from the document before."""


def write_collection(folder: Path, sources: Sequence[str], count: int) -> None:
    """Writes `count` documents in BEIR's layout, and all queries; the folder must not exist."""
    collections = [open_collection(source) for source in sources]
    originals = [document for found in collections for document in found.documents() if document.text.strip()]
    queries = [text for found in collections for text in found.queries.values()]
    folder.mkdir(parents=True)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as out:
        for number, document in enumerate(progress(islice(_copies(originals), count), count, "writing documents")):
            out.write(json.dumps({"_id": f"d{number}", "title": document.title, "text": document.body}) + "\n")
    with (folder / "queries.jsonl").open("w", encoding="utf-8") as out:
        out.writelines(json.dumps({"_id": f"q{number}", "text": text}) + "\n" for number, text in enumerate(queries))


def _copies(originals: Sequence[Document]) -> Iterator[Document]:
    """The documents, and then their copies without end."""
    yield from originals
    draw = np.random.default_rng(0)
    while True:
        for before, document in zip([originals[-1], *originals], originals, strict=False):
            words, others = document.body.split(), before.body.split() or ["."]
            for place in draw.choice(len(words), int(CHANGED * len(words)), replace=False).tolist():
                words[place] = others[draw.integers(len(others))]
            yield document._replace(body=" ".join(words))


@dataclass
class CopyEncoder:
    """Stands in for a bi-encoder that makes the vectors of `write_collection`'s documents, in their order.

    The first `originals` documents are encoded, and the others have their vectors, with noise.
    """

    encoder: BiEncoder
    originals: int
    _vectors: list[np.ndarray] = field(default_factory=list)
    _distances: np.ndarray | None = None
    _done: int = 0

    @property
    def hash(self) -> str:
        """That of the bi-encoder."""
        return self.encoder.hash

    @property
    def compares(self) -> str:
        """That of the bi-encoder."""
        return self.encoder.compares

    @property
    def max_tokens(self) -> int | None:
        """That of the bi-encoder."""
        return self.encoder.max_tokens

    def encode_documents(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """As `BiEncoder.encode_documents`."""
        encoded = texts[: max(0, self.originals - self._done)]
        if encoded:
            vectors, counts = self.encoder.encode_documents(encoded)
            self._vectors += np.split(vectors, counts.cumsum()[:-1])
        begin = self._done + len(encoded)
        places = [number % self.originals for number in range(begin, self._done + len(texts))]
        found = [*self._vectors[self._done : begin], *self._with_noise(places)]
        self._done += len(texts)
        return np.concatenate(found), np.array([len(some) for some in found], np.int64)

    def _with_noise(self, places: Sequence[int]) -> list[np.ndarray]:
        if not places:
            return []
        if self._distances is None:
            self._distances = neighbour_distances(np.concatenate(self._vectors))
        found = [self._vectors[place] for place in places]
        counts = [len(some) for some in found]
        noisy = with_noise(np.concatenate(found), self._distances, np.random.default_rng(self._done))
        return np.split(noisy, np.cumsum(counts)[:-1])


def neighbour_distances(vectors: np.ndarray) -> np.ndarray:
    """(vectors,) the distance of each vector of length 1 to the nearest of the others."""
    similarities = vectors @ vectors.T
    np.fill_diagonal(similarities, -1)
    distances: np.ndarray = np.sqrt(np.maximum(2 - 2 * similarities.max(1), 0))
    return distances


def with_noise(vectors: np.ndarray, distances: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """The vectors plus normal noise whose length is one of the distances, of length 1 again."""
    noise = draw.standard_normal(vectors.shape, np.float32)
    noise *= (draw.choice(distances, len(noise)) / np.linalg.norm(noise, axis=1))[:, None]
    moved = vectors + noise
    found: np.ndarray = (moved / np.linalg.norm(moved, axis=1, keepdims=True)).astype(np.float32)
    return found
