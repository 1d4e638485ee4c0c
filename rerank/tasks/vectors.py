"""The vectors of a collection's documents by a bi-encoder, kept in the collection's folder."""

from pathlib import Path
from typing import TYPE_CHECKING

from rerank.data.collections import Collection
from rerank.data.embeddings import EmbeddingStore, open_embeddings
from rerank.runs.layout import CollectionFolder
from rerank.utils.files import short_hash

if TYPE_CHECKING:
    from rerank.models.bi_encoder import BiEncoder


def open_vectors(encoder: "BiEncoder", collection: Collection, folder: CollectionFolder) -> EmbeddingStore:
    """The vectors of a collection's documents, made unless `folder` has them.

    Raises UserError if there is no document with text, and if the disk is full; the vectors that were made are kept.
    """
    place = vectors_folder(encoder, collection, folder)
    return open_embeddings(place, collection.documents, collection.count(), encoder.encode_documents)


def vectors_folder(encoder: "BiEncoder", collection: Collection, folder: CollectionFolder) -> Path:
    """Where the vectors are: the name is a hash of the documents and of the encoder."""
    return folder.embeddings / short_hash(collection.fingerprint, encoder.hash, encoder.max_tokens)
