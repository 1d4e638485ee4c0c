"""An approximate index of many vectors, by faiss: a search reads only some of them, and finds nearly all of the best.

The vectors are quantised to a byte per number and grouped in lists around centres (k-means). A search reads the lists
whose centres are most similar to the query. Jégou, Douze and Schmid, "Product Quantization for Nearest Neighbor
Search", TPAMI 2011; Douze et al., "The Faiss library", 2024.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rerank.data.embeddings import EmbeddingStore, or_one
from rerank.data.mapped import release
from rerank.retrieval.exact_search import best_of
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write
from rerank.utils.integrity import changes_since_record, write_record
from rerank.utils.locks import make_once
from rerank.utils.progress import log, progress

INDEX = "lists.faiss"
LISTS_PER_ROOT = 2
"""Number of lists, as a multiple of the root of the number of vectors: 2,000 for a million vectors."""
LEARNED_FROM = 40
"""Training vectors of k-means per list."""
ROUNDS = 8
"""Iterations of k-means."""
VECTORS_AT_ONCE = 2**16
"""Vectors that are added to the index at once."""
FEWEST_READ = 64
"""Smallest number of lists that a search reads."""
SHARE_READ = 32
"""A search reads 1 / SHARE_READ of the lists, if that is more than FEWEST_READ."""

VectorIndex = Any
"""faiss' index of lists, memory-mapped; faiss gives only the types of C++."""


def search_index(
    queries: Mapping[str, np.ndarray], documents: EmbeddingStore, depth: int, index: VectorIndex
) -> Iterator[tuple[str, dict[str, float]]]:
    """Does what `search_exactly` does, but only among the passages that the index finds; the scores are exact."""
    passages = depth * -(-len(documents.vectors) // len(documents))
    for query_id, vector in progress(queries.items(), len(queries), "searching", show=len(queries) > 1):
        query = vector[None].astype(np.float32, copy=False)
        _, (rows,) = index.search(query, passages)  # padded with -1
        rows = np.sort(rows[rows >= 0])
        (scores,) = documents.similarity(query, rows)
        yield query_id, best_of(rows, scores, depth, documents)


def index_folder(vectors: Path) -> Path:
    """The folder of the index of a store of vectors, beside the store."""
    return vectors.with_name(f"{vectors.name}-lists")


def open_index(folder: Path, documents: EmbeddingStore) -> VectorIndex:
    """Opens the index in `folder`, and builds it first if it does not exist.

    The name of the folder identifies the documents and the encoder. Raises UserError if the index is damaged or the
    disk is full.
    """
    import faiss

    make_once(folder, "vector index", lambda: _make(folder, documents))
    if changed := changes_since_record(folder):
        raise UserError(f"{folder}: damaged ({changed[0]}); remove the folder to build the index again")
    return faiss.read_index(str(folder / INDEX), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)


def _make(folder: Path, documents: EmbeddingStore) -> None:
    """Builds the index; an interrupted command starts again, as a million vectors take a minute or two."""
    import faiss

    lists = _learn_lists(documents)
    starts = range(0, len(documents.vectors), VECTORS_AT_ONCE)
    for start in progress(starts, len(starts), "indexing vectors"):
        lists.add(_vectors(documents, slice(start, start + VECTORS_AT_ONCE)))
    lists.nprobe = min(lists.nlist, max(FEWEST_READ, lists.nlist // SHARE_READ))
    with atomic_write(folder) as tmp:
        tmp.mkdir()
        try:
            faiss.write_index(lists, str(tmp / INDEX))
        except RuntimeError as error:
            reason = str(error).splitlines()[-1][:200]
            raise UserError(f"{folder}: cannot be written (disk full?): {reason}") from error
        write_record(tmp)
    log.info(f"{folder}: a search reads {lists.nprobe} of {lists.nlist} lists")


def _learn_lists(documents: EmbeddingStore) -> VectorIndex:
    import faiss

    count, dimensions = documents.vectors.shape
    centres = faiss.IndexFlatIP(dimensions)
    number = max(1, min(count // LEARNED_FROM, round(LISTS_PER_ROOT * math.sqrt(count))))
    kind, metric = faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    lists = faiss.IndexIVFScalarQuantizer(centres, dimensions, number, kind, metric)
    lists.cp.niter, lists.cp.max_points_per_centroid, lists.cp.min_points_per_centroid = ROUNDS, LEARNED_FROM, 1
    drawn = np.random.default_rng(0).choice(count, min(count, LEARNED_FROM * number), replace=False)
    log.info(f"learning the centres of {number:,} lists from {len(drawn):,} of {count:,} vectors")
    lists.train(_vectors(documents, np.sort(drawn)))
    return lists


def _vectors(documents: EmbeddingStore, rows: slice | np.ndarray) -> np.ndarray:
    """The vectors of `rows`, scaled to length 1 for cosine similarity."""
    vectors = np.array(documents.vectors[rows])
    if documents.cosine:
        vectors /= or_one(documents.lengths[rows, None])
    release(documents.vectors)
    return vectors
