"""World: a collection, and what is made of its documents once for all stages: the index and the vectors."""

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rerank.config import Config
from rerank.data.collections import Collection, open_collection
from rerank.data.embeddings import EmbeddingStore
from rerank.data.types import Run
from rerank.retrieval.exact_search import search_exactly
from rerank.retrieval.vector_index import VectorIndex, index_folder, open_index, search_index
from rerank.retrieval.words import find_words
from rerank.runs.layout import CollectionFolder
from rerank.tasks.collection import folder_of
from rerank.tasks.first_stage import find_index, with_texts
from rerank.tasks.vectors import LateInteraction, open_late_interaction, open_vectors, vectors_folder
from rerank.utils.progress import log

if TYPE_CHECKING:
    from rerank.models.bi_encoder import BiEncoder
    from rerank.tasks.rounded_vectors import RoundedVectors

MOST_KEPT = 100_000
"""Query vectors in memory; above it, all are made again."""
INDEXED_FROM = 500_000
"""Documents from which their vectors are searched with an index; exact search then takes over 100 ms."""
MOST_TEXTS_KEPT = 20_000
"""Documents whose words are in memory; above it, they are found again."""
SEARCHES_BEFORE_ROUNDING = 4
"""Searches for one query before the vectors are rounded for the next ones: those of two questions to a pipeline."""
MEASURED = 100
"""Queries that measure the recall of an index."""

Made = TypeVar("Made")


def once(make: Callable[["World", str], Made]) -> Callable[["World", str], Made]:
    """What a method makes with an encoder, made once for a world and those that know other queries."""

    @functools.wraps(make)
    def kept(self: "World", name: str) -> Made:
        key = make.__name__, name
        if key not in self._made:
            self._made[key] = make(self, name)
        made: Made = self._made[key]
        return made

    return kept


@dataclass(frozen=True)
class World:
    """A collection and the folder that keeps what is made of its documents.

    The keys of the index and of the vectors are hashes of the documents and of what made them. `config` has the
    settings that all stages share: the collection's, the index, the device and the seed. `queries` are those that are
    encoded together, so that their vectors do not depend on which of them are asked for first. `places` are the folders
    of models that were copied, by their names. `runs` are those that several fits of a stage need, by its settings.
    """

    config: Config
    collection: Collection
    folder: CollectionFolder
    queries: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    runs: dict[Any, Run] = field(default_factory=dict, repr=False)
    _made: dict[tuple[str, str], Any] = field(default_factory=dict, repr=False)
    _searches: Counter[str] = field(default_factory=Counter, repr=False)
    _query_vectors: dict[tuple[str, str], np.ndarray] = field(default_factory=dict, repr=False)
    _words: dict[str, list[str]] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, config: Config) -> "World":
        """The world of the collection that the settings name. Raises UserError if it cannot be opened."""
        collection = open_collection(config.collection.source, config.collection.queries)
        return cls(config, collection, folder_of(config, collection))

    def knowing(self, queries: Mapping[str, str]) -> "World":
        """The same world, with these queries."""
        return replace(self, queries=queries, runs={})

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

    @once
    def encoder(self, name: str) -> "BiEncoder":
        """The bi-encoder of a name or folder, on the device of the settings. Raises UserError if it is none."""
        from rerank.models.bi_encoder import BiEncoder  # loads torch

        precision = self.config.training.precision
        return BiEncoder.load(self.place_of(name), device=self._device(), precision=precision)

    @once
    def late_interaction(self, name: str) -> LateInteraction:
        """The late interaction of an encoder with the documents. Raises UserError if it cannot be opened."""
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

    @once
    def vectors(self, name: str) -> EmbeddingStore:
        """The vectors of the documents by a bi-encoder, made unless the folder has them."""
        return open_vectors(self.encoder(name), self.texts, self.folder)

    def made_with(self, name: str) -> list[Path]:
        """The folders of what the stages of this world have made of the documents with an encoder."""
        places = []
        if ("late_interaction", name) in self._made:
            places.append(self.late_interaction(name).store.folder)
        if ("vectors", name) in self._made:
            vectors = vectors_folder(self.encoder(name), self.texts, self.folder)
            places += [vectors, index_folder(vectors)]
        return [place for place in places if place.exists()]

    def query_vectors(self, name: str, queries: Mapping[str, str]) -> dict[str, np.ndarray]:
        """query_id to its (dimensions,) vector by a bi-encoder, of the queries that have text."""
        kept, texts = self._query_vectors, {query_id: text for query_id, text in queries.items() if text.strip()}
        if any((name, text) not in kept for text in texts.values()):
            if len(kept) > MOST_KEPT:
                kept.clear()
            for some in (self.queries, texts):  # those of the world first, and always all of them together
                missing = {(name, text): text for text in some.values() if text.strip() and (name, text) not in kept}
                if missing:
                    vectors = self.encoder(name).encode_queries(list(missing.values()))
                    kept.update(zip(missing, vectors, strict=True))
        return {query_id: kept[name, text] for query_id, text in texts.items()}

    def search(self, name: str, vectors: Mapping[str, np.ndarray], depth: int) -> Run:
        """The best documents of each query by its vector, query_id to (dimensions,) of a bi-encoder.

        Of `INDEXED_FROM` documents or more, those that an index finds are compared.
        """
        documents = self.vectors(name)
        if index := self._index(name):
            return dict(search_index(vectors, documents, depth, index))
        if len(vectors) == 1:
            self._searches[name] += 1
            if self._searches[name] > SEARCHES_BEFORE_ROUNDING and (rounded := self._rounded(name)):
                ((query_id, vector),) = vectors.items()
                return {query_id: rounded.search(vector, depth)}
        return dict(search_exactly(vectors, documents, depth))

    @once
    def _rounded(self, name: str) -> "RoundedVectors | None":
        """The rounded vectors of a bi-encoder, if they are faster."""
        from rerank.tasks.rounded_vectors import rounded_if_faster  # loads torch

        return rounded_if_faster(self.vectors(name))

    @once
    def _index(self, name: str) -> VectorIndex | None:
        """The index of the vectors of a bi-encoder, made unless the folder has it; None if they are too few for one."""
        documents = self.vectors(name)
        if len(documents) < INDEXED_FROM:
            return None
        if not find_spec("faiss"):
            log.info(f"{len(documents):,} documents: faiss would find vectors sooner: pip install 'ir-rerank[index]'")
            return None
        place = index_folder(vectors_folder(self.encoder(name), self.texts, self.folder))
        return open_index(place, documents, lambda: self._measured(name))

    def _measured(self, name: str) -> np.ndarray:
        """The vectors that the recall of an index is measured with: of queries, or else of documents."""
        queries = dict(islice(self.collection.queries.items(), MEASURED))
        if of_queries := self.query_vectors(name, queries):
            return np.stack(list(of_queries.values()))
        vectors = self.vectors(name).vectors
        return np.array(vectors[:: max(1, len(vectors) // MEASURED)][:MEASURED])
