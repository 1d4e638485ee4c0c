"""Vectors and codes of tokens of a collection's documents, made by bi-encoders and cached in its folder."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rerank.data.collections import Collection
from rerank.data.embeddings import COSINE, DOT, EmbeddingStore, open_embeddings
from rerank.data.store import StoreWriter, is_finished, open_store
from rerank.data.token_vectors import TokenVectorStore
from rerank.data.types import Document
from rerank.experiments.runs.layout import CollectionFolder
from rerank.utils.errors import UserError
from rerank.utils.files import short_hash
from rerank.utils.integrity import RECORD
from rerank.utils.progress import SECONDS_SAID, log, progress, say_how_long, timed_sample

if TYPE_CHECKING:
    from rerank.models.bi_encoder import BiEncoder
    from rerank.models.late_interaction import TokenEncoder

WEIGHTS = "weights"
"""The array with the weights of word pieces."""

TOKENS = "tokens"
"""The folder of the codes of tokens, beside the folders of the vectors by the same encoder."""

MOST_COUNTED = 50_000
"""Most documents whose word pieces are counted, at equal distances in the collection."""

DOCUMENTS_MEASURED = 128
"""Most documents whose embedding is timed, to say how long all will take."""

MEASURED_AT_ONCE = 8
"""Of these, documents that are embedded together."""

DOCUMENTS_AT_ONCE = 64
"""Documents that are tokenised together."""


def open_vectors(encoder: "BiEncoder", collection: Collection, folder: CollectionFolder) -> EmbeddingStore:
    """The vectors of a collection's documents, read from `folder` or made.

    If the folder has vectors of earlier documents, only new and changed documents are encoded. Raises UserError for an
    encoder whose similarity is neither the cosine nor the dot product, and if no document has text.
    """
    if encoder.compares not in (COSINE, DOT):
        raise UserError(
            f"encoder {encoder.name}: compares vectors by {encoder.compares}, expected {COSINE} or {DOT}: take another"
        )
    place = vectors_folder(encoder, collection, folder)
    kept = kept_vectors(place)
    if kept and not place.is_dir():
        log.info(f"{place.parent}: the documents have changed; new and changed ones are embedded")
    encode, is_cosine = encoder.encode_documents, encoder.compares == COSINE
    if not kept and not is_finished(place):
        say_embedding(encoder.name, encode, collection)
    return open_embeddings(place, collection.documents, collection.count(), encode, is_cosine, kept)


def kept_vectors(place: Path) -> Path | None:
    """The newest folder of vectors beside `place`, or `place` itself: by the same encoder; None if there is none."""
    newest = max(place.parent.glob(f"{'?' * 16}/{RECORD}"), key=lambda file: file.stat().st_mtime, default=None)
    return newest.parent if newest else None


def say_embedding(name: str, encode: Callable[[list[str]], object], collection: Collection) -> None:
    """Logs how many documents an encoder will embed, and about how long it takes if that is long."""
    seconds = seconds_to_embed(encode, collection)
    if seconds >= SECONDS_SAID:
        say_how_long(f"embedding {collection.count():,} documents by {name}", seconds)


def seconds_to_embed(encode: Callable[[list[str]], object], collection: Collection) -> float:
    """The seconds to embed all documents, from some of them; 0 for a collection that is too small to measure."""
    count = collection.count()
    texts = [document.text for document in itertools.islice(collection.documents(), DOCUMENTS_MEASURED)]
    texts = [text for text in texts if text.strip()]
    if not texts or count <= MEASURED_AT_ONCE:
        return 0.0
    chunks = [texts[first : first + MEASURED_AT_ONCE] for first in range(0, len(texts), MEASURED_AT_ONCE)]
    return timed_sample(encode, chunks) / MEASURED_AT_ONCE * count


def vectors_folder(encoder: "BiEncoder", collection: Collection, folder: CollectionFolder) -> Path:
    """The folder of the vectors, named by hashes of the encoder and of the documents."""
    return folder.embeddings / short_hash(encoder.hash, encoder.max_tokens) / short_hash(collection.fingerprint)


@dataclass(frozen=True)
class Compared:
    """The vectors that documents are compared with: the tokens of a query, or the groups of a document's tokens.

    vectors: (tokens, dimensions); weights: (tokens,); scores: a cache, doc_id -> score.
    """

    vectors: np.ndarray
    weights: np.ndarray
    scores: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class LateInteraction:
    """A token encoder, the store of the codes of documents, and (pieces,) the weights of word pieces."""

    encoder: "TokenEncoder"
    collection: Collection
    store: TokenVectorStore
    rotation: np.ndarray
    weights: np.ndarray
    _kept: dict[tuple[str, str], Compared] = field(default_factory=dict, repr=False)

    def add(self, doc_ids: Sequence[str]) -> None:
        """Encodes the documents that the store does not have yet."""
        from rerank.models.late_interaction import to_codes

        missing = [doc_id for doc_id in doc_ids if doc_id not in self.store]
        if missing:
            texts = {document.doc_id: document.text for document in self.collection.get(missing)}
            self.store.add(texts, lambda text: to_codes(self.encoder.document(text), self.rotation))

    def scores(self, query: str, doc_ids: Sequence[str], keep: bool = False) -> list[float]:
        """The weighted MaxSim of a query and each document; the documents must have been added.

        `keep` caches the scores in memory, for cross-fitting, which ranks a query several times.
        """

        def encode() -> Compared:
            vectors, pieces = self.encoder.query(query)
            return Compared(vectors, self.weights[pieces])

        return self._scores(("query", query), encode, doc_ids, keep)

    def similarities(self, doc_id: str, doc_ids: Sequence[str], keep: bool = False) -> list[float]:
        """The weighted MaxSim of the groups of a document's tokens and each document; all must have been added.

        0 for an encoder that was trained for late interaction. See `rerank.models.late_interaction.groups_of_tokens`.
        """
        from rerank.models.late_interaction import groups_of_tokens

        def group() -> Compared:
            (document,) = self.collection.get([doc_id])
            pieces = self.encoder.document_pieces(document.text)
            words = np.flatnonzero(pieces >= 0)
            codes = self.store[doc_id][words]
            return Compared(*groups_of_tokens(codes, self.weights[pieces[words]], self.rotation))

        if self.encoder.is_trained:
            return [0.0] * len(doc_ids)
        return self._scores(("document", doc_id), group, doc_ids, keep)

    def _scores(
        self, key: tuple[str, str], make: Callable[[], Compared], doc_ids: Sequence[str], keep: bool
    ) -> list[float]:
        from rerank.models.late_interaction import max_similarities

        compared = self._kept.get(key) or make()
        if keep:
            self._kept[key] = compared
        if missing := [doc_id for doc_id in doc_ids if doc_id not in compared.scores]:
            codes = [self.store[doc_id] for doc_id in missing]
            found = max_similarities(compared.vectors, compared.weights, codes, self.rotation)
            compared.scores.update(zip(missing, found.tolist(), strict=True))
        return [compared.scores[doc_id] for doc_id in doc_ids]

    def matches(self, query: str, documents: Sequence[Document]) -> list[dict[str, tuple[str, float]]]:
        """For each document: word of the query -> the most similar word of the document, and the similarity.

        {} for a document without tokens, and for a model that was trained for late interaction.
        """
        if self.encoder.is_trained:
            return [{} for _ in documents]
        (vectors, _), asked = self.encoder.query(query), self.encoder.words(query, True)
        return [self._matches_of(document, vectors, asked) for document in documents]

    def _matches_of(
        self, document: Document, vectors: np.ndarray, asked: Sequence[str]
    ) -> dict[str, tuple[str, float]]:
        """See `matches`; vectors: (tokens, dimensions) of the query; asked: the word of each of them."""
        from rerank.models.late_interaction import nearest_tokens

        found: dict[str, tuple[str, float]] = {}
        if not len(vectors) or document.doc_id not in self.store or not len(codes := self.store[document.doc_id]):
            return found
        words = self.encoder.words(document.text, False)
        places, similarities = nearest_tokens(vectors, codes, self.rotation)
        for word, place, similarity in zip(asked, places, similarities, strict=True):
            if word and words[place] and (word not in found or similarity > found[word][1]):
                found[word] = words[place], float(similarity)
        return found


def open_late_interaction(
    encoder: "TokenEncoder", collection: Collection, folder: CollectionFolder, cache: CollectionFolder | None = None
) -> LateInteraction:
    """Opens the codes and the weights of a collection for a token encoder.

    What `folder` lacks is made in it, or, if it is only read, in `cache`.
    """
    from rerank.models.late_interaction import rotation_of

    place, written = (
        vectors_folder(encoder.encoder, collection, one).parent / TOKENS for one in (folder, cache or folder)
    )
    rotation = rotation_of(encoder.dimensions)
    store = TokenVectorStore(place, rotation.shape[1] // 8, written)
    if encoder.is_trained:
        weights = np.ones(encoder.vocabulary, np.float32)
    else:
        of_pieces = place / short_hash(collection.fingerprint)
        weights = _weights(encoder, collection, of_pieces if is_finished(of_pieces) else written / of_pieces.name)
    return LateInteraction(encoder, collection, store, rotation, weights)


def _weights(encoder: "TokenEncoder", collection: Collection, folder: Path) -> np.ndarray:
    """(pieces,) float32: the inverse document frequency of word pieces, cached in `folder`."""

    def fill(writer: StoreWriter) -> None:
        if writer.items:
            return
        frequencies, counted = np.zeros(encoder.vocabulary, np.int64), 0
        total = collection.count()
        step = -(-total // MOST_COUNTED) or 1
        sample = itertools.islice(collection.documents(), 0, None, step)
        left = iter(progress(sample, -(-total // step), "counting word pieces"))
        while chunk := [document.text for document in itertools.islice(left, DOCUMENTS_AT_ONCE)]:
            counted += len(chunk)
            for pieces in encoder.pieces(chunk):
                frequencies[list(set(pieces))] += 1
        writer.add(WEIGHTS, np.log((counted + 1) / (frequencies + 1)))

    return open_store(folder, "weights of word pieces", {WEIGHTS: np.float32}, fill).values[WEIGHTS]
