"""The store of document vectors: computed once per collection and bi-encoder, on disk, memory-mapped."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from rerank.data.id_table import IdTable
from rerank.data.mapped import release, slices_of
from rerank.data.store import ArrayStore, StoreWriter, open_store, read_store
from rerank.data.types import Document
from rerank.utils.errors import UserError
from rerank.utils.progress import log, progress
from rerank.utils.texts import counted

DOCUMENTS_AT_ONCE = 64  # fixed, because the rounding of a vector depends on the batch it is encoded in
COLUMNS = {"vectors": np.float32, "passages": np.int64, "text": np.int64}  # passages: a count; text: a hash
COSINE = "cosine"
"""Cosine similarity, under sentence-transformers' name."""
DOT = "dot"
"""Similarity by dot product, under sentence-transformers' name."""

Encode = Callable[[Sequence[str]], tuple[np.ndarray, np.ndarray]]
"""Texts -> the vectors of their passages, (passages, dimensions) float32, and the passages of each text, int64."""


@dataclass(frozen=True)
class EmbeddingStore:
    """The vectors of the passages of all documents that have text.

    Document i has the id `ids.id_of(i)` and the vectors `vectors[offsets[i]:offsets[i + 1]]`, at least one. vectors:
    (passages, dimensions) float32. All arrays are memory-mapped. `cosine` compares by cosine, otherwise by dot product.
    """

    vectors: np.ndarray
    offsets: np.ndarray
    ids: IdTable
    cosine: bool

    def __len__(self) -> int:
        return len(self.ids)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """(passages,) float32: the length of each vector."""
        lengths = np.empty(len(self.vectors), np.float32)
        for rows in slices_of(len(lengths)):
            np.einsum("ij,ij->i", self.vectors[rows], self.vectors[rows], out=lengths[rows])
            release(self.vectors)
        return np.sqrt(lengths, out=lengths)

    def similarity(self, queries: np.ndarray, rows: slice | np.ndarray) -> np.ndarray:
        """(queries, passages) float32: similarities of (queries, dimensions) float32 vectors and passages `rows`."""
        scores: np.ndarray = queries @ self.vectors[rows].T
        if self.cosine:
            scores /= or_one(np.linalg.norm(queries, axis=1, keepdims=True))
            scores /= or_one(self.lengths[rows])
        return scores

    def vectors_of(self, number: int) -> np.ndarray:
        return self.vectors[self.offsets[number] : self.offsets[number + 1]]

    def numbers(self, doc_ids: Iterable[str]) -> dict[str, int]:
        """doc_id -> number, for the documents that have a vector."""
        found = ((doc_id, self.ids.get(doc_id)) for doc_id in doc_ids)
        return {doc_id: number for doc_id, number in found if number is not None}


def or_one(lengths: np.ndarray) -> np.ndarray:
    """The lengths, with 1 for a length of 0."""
    return np.where(lengths, lengths, np.float32(1))


def units(vectors: np.ndarray) -> np.ndarray:
    """The (…, dimensions) vectors scaled to length 1; zero vectors stay."""
    scaled: np.ndarray = vectors / or_one(np.linalg.norm(vectors, axis=-1, keepdims=True))
    return scaled


def open_embeddings(
    folder: Path,
    documents: Callable[[], Iterable[Document]],
    count: int,
    encode: Encode,
    cosine: bool,
    earlier: Path | None = None,
) -> EmbeddingStore:
    """Opens the store in `folder`, and builds it first if it does not exist.

    The name of the folder identifies the documents and the encoder. `count`, the approximate number of documents, is
    for the progress bar. `earlier` is a store of the same encoder: a document with the same id and text keeps its
    vectors. Documents without text have no vector; the log has their number. Raises UserError if no document has text,
    a vector is not finite, the store is damaged, or the disk is full; after a full disk the same call resumes.
    """

    def fill(writer: StoreWriter) -> None:
        kept = read_store(earlier, "vectors", COLUMNS) if earlier else None
        for chunk, done in unfinished_chunks(writer, progress(documents(), count, "embedding"), "the encoder"):
            known = _known(chunk, kept) if kept else {}
            new = [document for document in chunk if document.doc_id not in known]
            vectors_of = known | (vectors_by_document(new, encode) if new else {})
            for document in chunk[done:]:
                vectors = vectors_of[document.doc_id]
                writer.add(document.doc_id, vectors, [len(vectors)], [_text_hash(document)])

    store = open_store(folder, "vectors", COLUMNS, fill)
    return EmbeddingStore(*_rows(store), store.ids, cosine)


def unfinished_chunks(
    writer: StoreWriter, documents: Iterable[Document], encoder: str
) -> Iterator[tuple[list[Document], int]]:
    """Yields documents with text that are encoded together, and how many of them the store has; not if it has all.

    Logs the number of documents without text, which `encoder` cannot find. Raises UserError if no document has text.
    """
    left, number, empty = iter(documents), 0, 0
    while chunk := list(itertools.islice(left, DOCUMENTS_AT_ONCE)):
        with_text = [document for document in chunk if document.text.strip()]
        empty += len(chunk) - len(with_text)
        first, number = number, number + len(with_text)
        if writer.items < number:  # an interrupted command has not written the whole chunk
            yield with_text, writer.items - first
    if not number:
        raise UserError(f"{writer.folder}: there is no document with text to encode; expected at least one")
    if empty:
        log.info(f"{encoder} cannot find {counted(empty, 'document')} without text")


def _known(documents: Sequence[Document], kept: ArrayStore) -> dict[str, np.ndarray]:
    """doc_id -> vectors, for the documents that a store has with the same text."""
    rows = {document.doc_id: (kept.ids.get(document.doc_id, -1), _text_hash(document)) for document in documents}
    same = {doc_id: row for doc_id, (row, text) in rows.items() if row >= 0 and kept.values["text"][row] == text}
    return {
        doc_id: kept.array("vectors", row).reshape(kept.values["passages"][row], -1) for doc_id, row in same.items()
    }


def vectors_by_document(documents: Sequence[Document], encode: Encode) -> dict[str, np.ndarray]:
    """doc_id -> vectors of the document's passages; raises UserError for a vector that is not finite."""
    vectors, passages = encode([document.text for document in documents])
    finite = np.isfinite(vectors).all(1)
    if not finite.all():
        row = int(np.repeat(np.arange(len(passages)), passages)[~finite][0])
        raise UserError(
            f"document {documents[row].doc_id}: the encoder gives a vector with NaN or infinity; expected finite "
            "numbers: choose another encoder"
        )
    by_document = np.split(vectors, passages.cumsum()[:-1])
    return dict(zip((document.doc_id for document in documents), by_document, strict=True))


def _rows(store: ArrayStore) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of a store, (passages, dimensions), and the offset of each document's vectors."""
    offsets = np.concatenate([np.zeros(1, np.int64), store.values["passages"].cumsum()])
    return store.values["vectors"].reshape(int(offsets[-1]), -1), offsets


def _text_hash(document: Document) -> int:
    """A hash of the text, as a signed 64-bit integer."""
    return int.from_bytes(xxhash.xxh3_64_digest(document.text.encode()), signed=True)
