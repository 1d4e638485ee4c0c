"""World: a collection, and what is made of its documents once for all stages: the index and the vectors."""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rerank.config import Config
from rerank.data.collections import Collection, open_collection
from rerank.data.embeddings import EmbeddingStore
from rerank.data.types import Run
from rerank.experiments.collection import folder_of
from rerank.experiments.first_stage import find_index, with_texts
from rerank.experiments.runs.layout import CollectionFolder
from rerank.pipelines.vectors import LateInteraction, open_late_interaction, open_vectors, vectors_folder
from rerank.retrieval.exact_search import search_exactly
from rerank.retrieval.vector_index import VectorIndex, index_folder, open_index, search_index
from rerank.retrieval.words import find_words
from rerank.utils.errors import needed

if TYPE_CHECKING:
    from rerank.models.bi_encoder import BiEncoder

MOST_KEPT = 100_000
"""Query vectors in memory; above it, all are made again."""
FAISS = "faiss"
"""The setting of a stage that searches vectors with an index."""
LATE, VECTORS = "late interaction", "vectors"
"""What `made_with` looks for."""
MOST_TEXTS_KEPT = 20_000
"""Documents whose words are in memory; above it, they are found again."""

Made = TypeVar("Made")


class World:
    """What a stage is given: a collection, and what is made of its documents once for all stages.

    The keys of the index and of the vectors are hashes of the documents and of what made them.

    Attributes:
        config: the settings that all stages share: the collection's, the index, the device and the seed.
        collection: queries, documents and qrels.
        folder: the folder that keeps what is made of the documents.
        queries: query_id to text, encoded together: their vectors do not depend on which are asked for first.
        places: name of a model to the folder that it was copied to.
        runs: runs that several fits of a stage need, by its settings.
    """

    def __init__(
        self,
        config: Config,
        collection: Collection,
        folder: CollectionFolder,
        queries: Mapping[str, str] = MappingProxyType({}),
        places: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.config, self.collection, self.folder = config, collection, folder
        self.queries, self.places = queries, places
        self.runs: dict[Any, Run] = {}
        self._made: dict[tuple[str, str], Any] = {}
        self._query_vectors: dict[tuple[str, str], np.ndarray] = {}
        self._words: dict[str, list[str]] = {}
        self._lock = threading.RLock()  # held by the thread that opens an encoder or encodes queries

    @classmethod
    def open(cls, config: Config) -> "World":
        """The world of the collection that the settings name. Raises UserError if it cannot be opened."""
        collection = open_collection(config.collection.source, config.collection.queries)
        return cls(config, collection, folder_of(config, collection))

    def knowing(self, queries: Mapping[str, str]) -> "World":
        """A world with these queries, which shares what was made of the documents."""
        return self.changed(queries=queries)

    def changed(
        self,
        config: Config | None = None,
        collection: Collection | None = None,
        queries: Mapping[str, str] | None = None,
    ) -> "World":
        """A world with other settings, qrels or queries on the same documents, which shares what was made of these."""
        world = World(
            config or self.config,
            collection or self.collection,
            self.folder,
            self.queries if queries is None else queries,
            self.places,
        )
        world._made, world._query_vectors, world._words = self._made, self._query_vectors, self._words
        world._lock = self._lock
        return world

    def _once(self, what: str, encoder: str, make: Callable[[], Made]) -> Made:
        """What is made with an encoder, made once for this world and those that share with it."""
        with self._lock:
            if (what, encoder) not in self._made:
                self._made[what, encoder] = make()
            made: Made = self._made[what, encoder]
        return made

    @cached_property
    def index(self) -> Path:
        """The Lucene index, built unless the folder has it. Raises UserError as `find_index`."""
        return find_index(self.config, self.collection, self.folder)

    @cached_property
    def index_with_words(self) -> Path:
        """As `index`, with the words of each document, which take four times the space."""
        return find_index(self.config, self.collection, self.folder, with_words=True)

    @cached_property
    def texts(self) -> Collection:
        """The collection, with the texts of the index if its documents are not on this machine."""
        return with_texts(self.config, self.collection, self.folder)

    def words(self, doc_ids: Sequence[str]) -> list[list[str]]:
        """The words of each document, as BM25 sees them."""
        kept, language = self._words, self.config.collection.language
        if len(kept) > MOST_TEXTS_KEPT:
            kept.clear()
        found = {doc_id: kept.get(doc_id) for doc_id in doc_ids}
        for document in self.texts.get([doc_id for doc_id, words in found.items() if words is None]):
            found[document.doc_id] = kept[document.doc_id] = [word.term for word in find_words(document.text, language)]
        return [found[doc_id] or [] for doc_id in doc_ids]

    def encoder(self, name: str) -> "BiEncoder":
        """The bi-encoder of a name or folder, on the device of the settings. Raises UserError if it is none."""
        from rerank.models.bi_encoder import BiEncoder  # loads torch

        place, precision = self.place_of(name), self.config.training.precision
        return self._once("encoder", name, lambda: BiEncoder.load(place, device=self._device(), precision=precision))

    def late_interaction(self, name: str) -> LateInteraction:
        """The late interaction of an encoder with the documents. Raises UserError if it cannot be opened."""
        return self._once(LATE, name, lambda: self._open_late_interaction(name))

    def _open_late_interaction(self, name: str) -> LateInteraction:
        from rerank.models.late_interaction import TokenEncoder, is_multi_vector, open_multi_vector  # load torch

        place, precision = self.place_of(name), self.config.training.precision
        is_trained = is_multi_vector(place)
        encoder = open_multi_vector(place, self._device(), precision) if is_trained else self.encoder(name)
        return open_late_interaction(TokenEncoder(encoder, is_trained), self.texts, self.folder)

    def _device(self) -> str:
        from rerank.training.device import select_device  # loads torch

        return str(select_device(self.config.training.device))

    def place_of(self, model: str) -> str:
        """Where a model is: the folder that it was copied to, or its name."""
        return self.places.get(model, model)

    def vectors(self, name: str) -> EmbeddingStore:
        """The vectors of the documents by a bi-encoder, made unless the folder has them."""
        return self._once(VECTORS, name, lambda: open_vectors(self.encoder(name), self.texts, self.folder))

    def made_with(self, name: str) -> list[Path]:
        """The folders of what the stages of this world have made of the documents with an encoder."""
        places = []
        if (LATE, name) in self._made:
            places.append(self.late_interaction(name).store.folder)
        if (VECTORS, name) in self._made:
            vectors = vectors_folder(self.encoder(name), self.texts, self.folder)
            places += [vectors, index_folder(vectors)]
        return [place for place in places if place.exists()]

    def query_vectors(self, name: str, queries: Mapping[str, str]) -> dict[str, np.ndarray]:
        """query_id to its (dimensions,) vector by a bi-encoder, of the queries that have text."""
        kept, texts = self._query_vectors, {query_id: text for query_id, text in queries.items() if text.strip()}
        with self._lock:
            if any((name, text) not in kept for text in texts.values()):
                if len(kept) > MOST_KEPT:
                    kept.clear()
                for some in (self.queries, texts):  # those of the world first, and always all of them together
                    missing = {(name, t): t for t in some.values() if t.strip() and (name, t) not in kept}
                    if missing:
                        vectors = self.encoder(name).encode_queries(list(missing.values()))
                        kept.update(zip(missing, vectors, strict=True))
            return {query_id: kept[name, text] for query_id, text in texts.items()}

    def search(self, name: str, vectors: Mapping[str, np.ndarray], depth: int, index: str) -> Run:
        """The best documents of each query by its vector, query_id to (dimensions,) of a bi-encoder.

        `index` is "faiss", which compares those that an index finds, or "exact", which compares all.
        """
        documents = self.vectors(name)
        if index == FAISS:
            return dict(search_index(vectors, documents, depth, self.vector_index(name)))
        return dict(search_exactly(vectors, documents, depth))

    def vector_index(self, name: str) -> VectorIndex:
        """The index of the vectors of a bi-encoder, made unless the folder has it. Raises UserError without faiss."""
        needed("faiss", 'index = "faiss"', "index")
        place = index_folder(vectors_folder(self.encoder(name), self.texts, self.folder))
        return self._once("index", name, lambda: open_index(place, self.vectors(name)))

    def make_vectors(self, name: str, index: str) -> None:
        """Makes what `search` needs of the documents, unless the folder has it. Raises UserError as `vector_index`."""
        self.vectors(name)
        if index == FAISS:
            self.vector_index(name)
