"""World: a collection, with the index and the vectors of its documents, which all stages share."""

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rerank.config import Config
from rerank.data.collections import Collection, with_copied_documents
from rerank.data.embeddings import EmbeddingStore
from rerank.data.store import is_finished
from rerank.data.types import Run
from rerank.experiments.collection import collection_of, folder_of
from rerank.experiments.first_stage import find_index, with_texts
from rerank.experiments.runs.layout import CollectionFolder
from rerank.pipelines.sparse_vectors import SparseVectors, open_sparse_vectors, sparse_folder
from rerank.pipelines.vectors import (
    LateInteraction,
    kept_vectors,
    open_late_interaction,
    open_vectors,
    seconds_to_embed,
    vectors_folder,
)
from rerank.retrieval.exact_search import search_exactly
from rerank.retrieval.lucene_index import own_index
from rerank.retrieval.vector_index import VectorIndex, index_folder, open_index, search_index
from rerank.retrieval.words import find_words
from rerank.utils.errors import needed

if TYPE_CHECKING:
    from rerank.models.bi_encoder import BiEncoder
    from rerank.models.sparse_encoder import SparseEncoder

MOST_KEPT = 100_000
"""Most query vectors in memory; the cache is cleared above it."""

FAISS = "faiss"
"""The `index` of a stage that searches vectors with faiss."""

LATE = "late interaction"
"""The key of codes of tokens among the shared objects."""

SPARSE = "sparse vectors"
"""The key of sparse vectors of documents among the shared objects."""

VECTORS = "vectors"
"""The key of vectors of documents among the shared objects."""

INDEX = "index"
"""The key of an index of vectors among the shared objects."""

SECONDS = "seconds to embed"
"""The key of a measured time among the shared objects."""

MOST_TEXTS_KEPT = 20_000
"""Most documents whose words are in memory; the cache is cleared above it."""

Made = TypeVar("Made")


class World:
    """The argument of a stage: a collection, with the index and the vectors of its documents, which all stages share.

    The names of the index and of the vectors are hashes of the documents and of the settings that made them.

    Attributes:
        config: the settings that all stages share: the collection's, the index, the device and the seed.
        collection: queries, documents and qrels.
        folder: the folder with the index and the vectors.
        queries: query_id -> text; encoded together, so that vectors do not depend on the order of requests.
        places: name of a model or a file of a stage -> where it is, such as a copy.
        cache: the folder for an index or vectors that a read-only `folder` lacks.
        runs: settings of a stage -> a run that its fits on several parts share.
    """

    def __init__(
        self,
        config: Config,
        collection: Collection,
        folder: CollectionFolder,
        queries: Mapping[str, str] = MappingProxyType({}),
        places: Mapping[str, str] = MappingProxyType({}),
        cache: CollectionFolder | None = None,
    ) -> None:
        self.config, self.collection, self.folder = config, collection, folder
        self.queries, self.places, self.cache = queries, places, cache
        self.runs: dict[Hashable, Run] = {}
        self._made: dict[tuple[str, str], Any] = {}
        self._query_vectors: dict[tuple[str, str], np.ndarray] = {}
        self._words: dict[str, list[str]] = {}
        self._lock = threading.RLock()  # held by the thread that opens an encoder or encodes queries

    @classmethod
    def open(cls, config: Config, copy_to: Path | None = None) -> "World":
        """Opens the collection that the settings name; `copy_to` is a folder for a copy of its documents.

        Raises UserError if the collection cannot be opened.
        """
        collection = collection_of(config.collection)
        if copy_to:
            collection = with_copied_documents(collection, copy_to)
        return cls(config, collection, folder_of(config, collection))

    def knowing(self, queries: Mapping[str, str]) -> "World":
        """A copy with these queries, which shares index, vectors and caches."""
        return self.changed(queries=queries)

    def changed(
        self,
        config: Config | None = None,
        collection: Collection | None = None,
        queries: Mapping[str, str] | None = None,
    ) -> "World":
        """A copy with other settings, qrels or queries on the same documents, which shares vectors and caches."""
        world = World(
            config or self.config,
            collection or self.collection,
            self.folder,
            self.queries if queries is None else queries,
            self.places,
            self.cache,
        )
        world._made, world._query_vectors, world._words = self._made, self._query_vectors, self._words
        world._lock = self._lock
        return world

    def _once(self, what: str, encoder: str, make: Callable[[], Made]) -> Made:
        """Calls `make` once per encoder; the result is shared by copies with other queries."""
        with self._lock:
            if (what, encoder) not in self._made:
                self._made[what, encoder] = make()
            made: Made = self._made[what, encoder]
        return made

    @cached_property
    def index(self) -> Path:
        """The Lucene index, built unless it exists. Raises UserError as `find_index`."""
        return self._index(with_words=False)

    @cached_property
    def index_with_words(self) -> Path:
        """As `index`, with the words of each document (for RM3), which take four times the space."""
        return self._index(with_words=True)

    def _index(self, with_words: bool) -> Path:
        language = self.config.collection.language
        folder = self._where(lambda one: own_index(self.collection, one.index, language, with_words).exists())
        return find_index(self.config, self.collection, folder, with_words)

    def _where(self, has: Callable[[CollectionFolder], bool]) -> CollectionFolder:
        """The folder, or the cache if the folder is only read and does not have something."""
        return self.folder if self.cache is None or has(self.folder) else self.cache

    @cached_property
    def texts(self) -> Collection:
        """The collection, with the texts of the index if its documents are not on this machine."""
        return with_texts(self.config, self.collection, self.cache or self.folder)

    def words(self, doc_ids: Sequence[str]) -> list[list[str]]:
        """The words of each document, as BM25 analyses them."""
        kept, language = self._words, self.config.collection.language
        if len(kept) > MOST_TEXTS_KEPT:
            kept.clear()
        found = {doc_id: kept.get(doc_id) for doc_id in doc_ids}
        for document in self.texts.get([doc_id for doc_id, words in found.items() if words is None]):
            found[document.doc_id] = kept[document.doc_id] = [word.term for word in find_words(document.text, language)]
        return [found[doc_id] or [] for doc_id in doc_ids]

    def encoder(self, name: str) -> "BiEncoder":
        """The bi-encoder of a name or folder, on the device of the settings; raises UserError if it is none."""
        from rerank.models.bi_encoder import BiEncoder  # loads torch

        place, precision = self.place_of(name), self.config.training.precision
        return self._once("encoder", name, lambda: BiEncoder.load(place, device=self._device(), precision=precision))

    def late_interaction(self, name: str) -> LateInteraction:
        """The token encoder and the codes of the documents. Raises UserError if the encoder cannot be opened."""
        return self._once(LATE, name, lambda: self._open_late_interaction(name))

    def _open_late_interaction(self, name: str) -> LateInteraction:
        from rerank.models.late_interaction import TokenEncoder, is_multi_vector, open_multi_vector  # load torch

        place, precision = self.place_of(name), self.config.training.precision
        is_trained = is_multi_vector(place)
        encoder = open_multi_vector(place, self._device(), precision) if is_trained else self.encoder(name)
        return open_late_interaction(TokenEncoder(encoder, is_trained), self.texts, self.folder, self.cache)

    def sparse_vectors(self, name: str) -> SparseVectors:
        """The vectors of the documents by a sparse encoder, made unless they exist; UserError if it is none."""
        return self._once(SPARSE, name, lambda: self._open_sparse_vectors(name))

    def _open_sparse_vectors(self, name: str) -> SparseVectors:
        encoder = self._sparse_encoder(name)
        folder = self._where(lambda one: is_finished(sparse_folder(encoder, self.texts, one)))
        return open_sparse_vectors(encoder, self.texts, folder)

    def _sparse_encoder(self, name: str) -> "SparseEncoder":
        from rerank.models.sparse_encoder import open_sparse_encoder  # loads torch

        place, precision = self.place_of(name), self.config.training.precision
        return self._once("sparse encoder", name, lambda: open_sparse_encoder(place, self._device(), precision))

    def seconds_to_weigh(self, name: str) -> float:
        """As `seconds_to_embed`, for the vectors of a sparse encoder."""
        encoder = self._sparse_encoder(name)
        if is_finished(sparse_folder(encoder, self.texts, self.folder)):
            return 0.0
        return seconds_to_embed(encoder.encode_documents, self.texts)

    def _device(self) -> str:
        from rerank.training.device import select_device  # loads torch

        return str(select_device(self.config.training.device))

    def place_of(self, model: str) -> str:
        """The folder that a model was copied to, or else its name."""
        return self.places.get(model, model)

    def vectors(self, name: str) -> EmbeddingStore:
        """The vectors of the documents by a bi-encoder, made unless they exist."""
        return self._once(VECTORS, name, lambda: self._open_vectors(name))

    def _open_vectors(self, name: str) -> EmbeddingStore:
        folder = self._where(lambda one: is_finished(self._vectors_folder(name, one)))
        return open_vectors(self.encoder(name), self.texts, folder)

    def seconds_to_embed(self, name: str) -> float:
        """The seconds until a bi-encoder has embedded all documents, measured for about a second.

        0 if it has, also before some documents changed.
        """
        if kept_vectors(self._vectors_folder(name, self.folder)):
            return 0.0
        encode = self.encoder(name).encode_documents
        return self._once(SECONDS, name, lambda: seconds_to_embed(encode, self.texts))

    def _vectors_folder(self, name: str, folder: CollectionFolder) -> Path:
        return vectors_folder(self.encoder(name), self.texts, folder)

    def made_with(self, name: str) -> list[Path]:
        """The folders of vectors and codes that the stages of this world made with an encoder."""
        places = []
        if (LATE, name) in self._made:
            places.append(self.late_interaction(name).store.folder)
        if (SPARSE, name) in self._made:
            places.append(self.sparse_vectors(name).folder)
        if (VECTORS, name) in self._made:
            vectors = self._vectors_folder(name, self.folder)
            places += [vectors, index_folder(vectors)]
        return [place for place in places if place.exists()]

    def query_vectors(self, name: str, queries: Mapping[str, str]) -> dict[str, np.ndarray]:
        """query_id -> (dimensions,) vector by a bi-encoder, for the queries that have text."""
        kept, texts = self._query_vectors, {query_id: text for query_id, text in queries.items() if text.strip()}
        with self._lock:
            if any((name, text) not in kept for text in texts.values()):
                if len(kept) > MOST_KEPT:
                    kept.clear()
                for group in (self.queries, texts):  # the world's queries first, always encoded together
                    missing = {(name, t): t for t in group.values() if t.strip() and (name, t) not in kept}
                    if missing:
                        vectors = self.encoder(name).encode_queries(list(missing.values()))
                        kept.update(zip(missing, vectors, strict=True))
            return {query_id: kept[name, text] for query_id, text in texts.items()}

    def search(self, name: str, vectors: Mapping[str, np.ndarray], depth: int, index: str) -> Run:
        """The best documents of each query, by its (dimensions,) vector of a bi-encoder.

        `index` is "exact", which compares all vectors, or "faiss", which compares only those that an index finds.
        """
        documents = self.vectors(name)
        if index == FAISS:
            return dict(search_index(vectors, documents, depth, self.vector_index(name)))
        return dict(search_exactly(vectors, documents, depth))

    def vector_index(self, name: str) -> VectorIndex:
        """The faiss index of the vectors of a bi-encoder, made unless it exists. Raises UserError without faiss."""
        return self._once(INDEX, name, lambda: self._open_vector_index(name))

    def _open_vector_index(self, name: str) -> VectorIndex:
        needed("faiss", 'index = "faiss"', "index")
        folder = self._where(lambda one: index_folder(self._vectors_folder(name, one)).exists())
        return open_index(index_folder(self._vectors_folder(name, folder)), self.vectors(name))

    def make_vectors(self, name: str, index: str) -> None:
        """Makes the vectors and the index that `search` needs. Raises UserError as `vector_index`."""
        self.vectors(name)
        if index == FAISS:
            self.vector_index(name)
