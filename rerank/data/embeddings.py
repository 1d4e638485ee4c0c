"""The vectors of documents: made once for a collection and a bi-encoder, on disk, and memory-mapped."""

import itertools
import struct
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rerank.data.arrays import map_array, map_bytes, write_array
from rerank.data.types import Document
from rerank.utils.errors import UserError
from rerank.utils.integrity import RECORD, Record, changes_since_record, write_record
from rerank.utils.locks import make_once
from rerank.utils.progress import log, progress
from rerank.utils.resumable import Unfinished, put_in_place, resumable

VECTORS, IDS, OFFSETS, ID_OFFSETS = "vectors.bin", "ids.bin", "offsets.npy", "id_offsets.npy"
SIZES = "sizes.bin"
"""Two int64 of each document: its passages, and the bytes of its id. Removed when the store is whole."""
DOCUMENTS_AT_ONCE = 64
"""Documents that are encoded together. A vector depends, by rounding, on those beside it, so the number is fixed."""
NAMED = 5
"""Documents without text that a line names."""

Encode = Callable[[Sequence[str]], tuple[np.ndarray, np.ndarray]]
"""Texts -> the vectors of their passages, (passages, dimensions) float32, and the passages of each text, int64."""


@dataclass(frozen=True)
class EmbeddingStore:
    """The vectors of the passages of all documents that have text.

    Document i has the vectors `vectors[offsets[i]:offsets[i + 1]]`, at least one, and the id
    `ids[id_offsets[i]:id_offsets[i + 1]]`. vectors: (passages, dimensions) float32; all are memory-mapped.
    """

    vectors: np.ndarray
    offsets: np.ndarray
    ids: np.ndarray
    id_offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def vectors_of(self, number: int) -> np.ndarray:
        """The vectors of document `number`, from 0: (passages, dimensions)."""
        return self.vectors[self.offsets[number] : self.offsets[number + 1]]

    def doc_id(self, number: int) -> str:
        """The id of document `number`, from 0."""
        return self.ids[self.id_offsets[number] : self.id_offsets[number + 1]].tobytes().decode()

    def numbers(self, doc_ids: Container[str]) -> dict[str, int]:
        """The numbers of those of the documents that have a vector."""
        return {doc_id: number for number in range(len(self)) if (doc_id := self.doc_id(number)) in doc_ids}


def open_embeddings(
    folder: Path, documents: Callable[[], Iterable[Document]], count: int, encode: Encode
) -> EmbeddingStore:
    """Opens the store in `folder`, and makes it first if it does not exist.

    The name of the folder identifies the documents and what encodes them; `count`, about the number of the documents,
    is for the progress bar. Documents without text have no vector, and are logged. Raises UserError if there is no
    document with text, for vectors that are not finite, for a store that is damaged, and for a full disk, after which
    the same call goes on where this one was.
    """
    make_once(folder, "embeddings", lambda: _write(folder, documents(), count, encode))
    return _read(folder)


def _write(folder: Path, documents: Iterable[Document], count: int, encode: Encode) -> None:
    with resumable(folder, (VECTORS, IDS, SIZES), folder.name) as unfinished:
        left = itertools.islice(documents, unfinished.done, None)
        encoded = _write_vectors(unfinished, left, encode)
        for _ in progress(encoded, count, "embedding documents", before=unfinished.done):
            pass
        unfinished.save()
        if not unfinished.files[IDS].size:
            raise UserError(f"{folder}: there is no document with text to encode; expected at least one")
        record = {name: unfinished.files[name].facts() for name in (VECTORS, IDS)}
        write_record(unfinished.folder, record | _write_offsets(unfinished.folder))
    put_in_place(unfinished.folder, folder)
    (folder / SIZES).unlink()
    if empty := unfinished.facts.get("empty"):
        names = ", ".join(unfinished.facts["first_empty"])
        log.info(f"{empty} documents have no text, so the encoder cannot find them: {names}")


def _write_vectors(unfinished: Unfinished, documents: Iterator[Document], encode: Encode) -> Iterator[Document]:
    """Yields each document when its vectors are written."""
    facts, files = unfinished.facts, unfinished.files
    facts.update({"empty": 0, "first_empty": []} | facts)
    while chunk := list(itertools.islice(documents, DOCUMENTS_AT_ONCE)):
        with_text = [document for document in chunk if document.text.strip()]
        vectors, passages = encode([document.text for document in with_text])
        _expect_finite(vectors, passages, with_text)
        ids = [document.doc_id.encode() for document in with_text]
        files[VECTORS].write(np.ascontiguousarray(vectors, np.float32).tobytes())
        files[IDS].write(b"".join(ids))
        sizes = zip(passages.tolist(), map(len, ids), strict=True)
        files[SIZES].write(b"".join(struct.pack("=qq", *size) for size in sizes))
        empty = [document.doc_id for document in chunk if not document.text.strip()]
        facts["empty"] += len(empty)
        facts["first_empty"] = [*facts["first_empty"], *empty][:NAMED]
        unfinished.finish_item(len(chunk))
        yield from chunk


def _expect_finite(vectors: np.ndarray, passages: np.ndarray, documents: Sequence[Document]) -> None:
    """Raises UserError for the first document with a vector that is not finite."""
    finite = np.isfinite(vectors).all(1)
    if not finite.all():
        row = int(np.repeat(np.arange(len(passages)), passages)[~finite][0])
        raise UserError(
            f"document {documents[row].doc_id}: the encoder gives a vector with NaN or infinity; expected finite "
            "numbers: choose another encoder"
        )


def _write_offsets(folder: Path) -> Record:
    """Writes where each document is in the vectors, and its id in the ids."""
    sizes = map_bytes(folder / SIZES, np.int64).reshape(-1, 2)
    offsets = np.zeros((2, len(sizes) + 1), dtype=np.int64)
    np.cumsum(sizes, axis=0, out=offsets[:, 1:].T)
    return {name: write_array(folder / name, ends) for name, ends in zip((OFFSETS, ID_OFFSETS), offsets, strict=True)}


def _read(folder: Path) -> EmbeddingStore:
    """The store, memory-mapped. Raises UserError if a file is missing, or differs from its record."""
    changed = changes_since_record(folder) if (folder / RECORD).exists() else [f"{RECORD}: expected a file, found none"]
    try:
        if changed:
            raise ValueError("; ".join(changed))
        offsets, id_offsets = (map_array(folder / name, (np.int64,), 1) for name in (OFFSETS, ID_OFFSETS))
        vectors, ids = map_bytes(folder / VECTORS, np.float32), map_bytes(folder / IDS, np.uint8)
        if len(offsets) != len(id_offsets) or len(offsets) < 2 or len(vectors) % offsets[-1]:
            raise ValueError("its files are not of the same documents")
    except (OSError, ValueError) as error:
        raise UserError(
            f"{folder}: the vectors of the documents cannot be read ({error}); remove the folder and run again"
        ) from error
    return EmbeddingStore(vectors.reshape(int(offsets[-1]), -1), offsets, ids, id_offsets)
