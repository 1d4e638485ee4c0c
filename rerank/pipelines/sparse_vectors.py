"""The sparse vectors of a collection's documents: made once by a sparse encoder, on disk, and searched exactly."""

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from rerank.data.collections import Collection
from rerank.data.embeddings import unfinished_chunks
from rerank.data.store import ArrayStore, StoreWriter, is_finished, open_store
from rerank.data.types import Run
from rerank.experiments.runs.layout import CollectionFolder
from rerank.pipelines.vectors import say_embedding
from rerank.utils.files import short_hash
from rerank.utils.progress import progress

if TYPE_CHECKING:
    from rerank.models.sparse_encoder import SparseEncoder

COLUMNS = {"pieces": np.int32, "weights": np.float32}
"""The word pieces of a document with a weight, ascending, and the weights."""

QUERIES_AT_ONCE = 32
"""Queries that are compared with all documents together."""


@dataclass(frozen=True)
class SparseVectors:
    """A sparse encoder and the vectors of the documents that have text."""

    encoder: "SparseEncoder"
    store: ArrayStore
    folder: Path

    @functools.cached_property
    def matrix(self) -> sparse.csr_matrix:
        """(documents, word pieces) float32, up to the last word piece that a document has."""
        offsets, pieces = self.store.offsets("weights"), self.store.values["pieces"]
        shape = len(self.store), int(pieces.max(initial=-1)) + 1
        return sparse.csr_matrix((self.store.values["weights"], pieces, offsets), shape=shape)

    def search(self, queries: Mapping[str, str], depth: int) -> Run:
        """The `depth` documents of each query with the highest dot products above 0, best first."""
        run: Run = {}
        left = iter(queries.items())
        while chunk := dict(itertools.islice(left, QUERIES_AT_ONCE)):
            vectors = self.encoder.encode_queries(list(chunk.values()))
            scores = self.matrix @ vectors[:, : self.matrix.shape[1]].toarray().T
            for query_id, column in zip(chunk, scores.T, strict=True):
                best = (-column).argsort(kind="stable")[:depth]
                found = best[column[best] > 0]
                run[query_id] = {self.store.ids.id_of(row): float(column[row]) for row in found.tolist()}
        return run


def open_sparse_vectors(encoder: "SparseEncoder", collection: Collection, folder: CollectionFolder) -> SparseVectors:
    """The sparse vectors of a collection's documents, read from `folder` or made; an interrupted command resumes.

    Raises UserError if no document has text, and as `open_store`.
    """

    def fill(writer: StoreWriter) -> None:
        documents = progress(collection.documents(), collection.count(), "sparse vectors")
        for chunk, done in unfinished_chunks(writer, documents, "the sparse encoder"):
            rows = encoder.encode_documents([document.text for document in chunk])
            for place in range(done, len(chunk)):
                row = rows[place]
                writer.add(chunk[place].doc_id, row.indices, row.data)

    place_of = sparse_folder(encoder, collection, folder)
    if not is_finished(place_of):
        say_embedding(encoder.name, encoder.encode_documents, collection)
    return SparseVectors(encoder, open_store(place_of, "sparse vectors", COLUMNS, fill), place_of)


def sparse_folder(encoder: "SparseEncoder", collection: Collection, folder: CollectionFolder) -> Path:
    """The folder of the vectors, named by hashes of the encoder and of the documents."""
    return folder.embeddings / short_hash("sparse", encoder.hash) / short_hash(collection.fingerprint)
