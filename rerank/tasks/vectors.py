"""The vectors of a collection's documents by a bi-encoder, kept in the collection's folder."""

from pathlib import Path
from typing import TYPE_CHECKING

from rerank.data.collections import Collection
from rerank.data.embeddings import COSINE, DOT, EmbeddingStore, open_embeddings
from rerank.runs.layout import CollectionFolder
from rerank.utils.errors import UserError
from rerank.utils.files import short_hash
from rerank.utils.integrity import RECORD
from rerank.utils.progress import log

if TYPE_CHECKING:
    from rerank.models.bi_encoder import BiEncoder


def open_vectors(encoder: "BiEncoder", collection: Collection, folder: CollectionFolder) -> EmbeddingStore:
    """The vectors of a collection's documents, made unless `folder` has them.

    If it has those of earlier documents, only documents that are new or have another text are encoded. Raises UserError
    for an encoder with another similarity than cosine and product, if there is no document with text, and if the disk
    is full; the vectors that were made are kept.
    """
    if encoder.compares not in (COSINE, DOT):
        raise UserError(
            f"encoder {encoder.name}: compares vectors by {encoder.compares}, expected {COSINE} or {DOT}: take another"
        )
    place = vectors_folder(encoder, collection, folder)
    earlier = max(place.parent.glob(f"{'?' * 16}/{RECORD}"), key=lambda file: file.stat().st_mtime, default=None)
    if not place.is_dir():
        if earlier:
            log.info(f"{place.parent}: the documents have changed: new ones, and those with another text, are embedded")
        elif any(folder.embeddings.glob(f"*/*/{RECORD}")):
            log.info(f"{folder.embeddings}: has no vectors by {encoder.name} as it is now: all documents are embedded")
    encode, is_cosine = encoder.encode_documents, encoder.compares == COSINE
    kept = earlier.parent if earlier else None
    return open_embeddings(place, collection.documents, collection.count(), encode, is_cosine, kept)


def vectors_folder(encoder: "BiEncoder", collection: Collection, folder: CollectionFolder) -> Path:
    """Where the vectors are: the names are hashes of the encoder and of the documents."""
    return folder.embeddings / short_hash(encoder.hash, encoder.max_tokens) / short_hash(collection.fingerprint)
