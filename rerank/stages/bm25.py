"""The stage `bm25`: Pyserini's BM25 on the Lucene index of the collection."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from rerank.data.types import Fold, Run
from rerank.stages.base import Learns, stage
from rerank.stages.world import World
from rerank.utils.parameters import Whole, at_least, between


@stage
@dataclass(frozen=True)
class BM25:
    """Retrieves documents by the words of the query (`rerank.retrieval.bm25`)."""

    k1: Annotated[float, between(0, 1e6)] = 0.9
    """BM25's k1."""
    b: Annotated[float, between(0, 1)] = 0.4
    """BM25's b."""
    depth: Annotated[Whole, at_least(1)] = 1000
    """Documents of a query."""
    kind: ClassVar[str] = "bm25"
    of: ClassVar[tuple[str, ...]] = ()
    learns: ClassVar[Learns] = "nothing"

    def check(self) -> None:
        """Every setting is checked by its bounds."""

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> "BM25Ranker":
        """Builds the index, unless the world has it."""
        return self.open(world, folder)

    def open(self, world: World, folder: Path) -> "BM25Ranker":
        """A searcher of the world's index."""
        return BM25Ranker(self, world.index, world.config.collection.language, world.config.first_stage.threads or None)


@dataclass(frozen=True)
class BM25Ranker:
    """Searches an index."""

    settings: BM25
    index: Path
    language: str
    threads: int | None

    def rank(self, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        """The best documents of each query that has a word of the index."""
        from rerank.retrieval.bm25 import search, search_one  # starts Java when it is used

        settings = self.settings
        with_text = {query_id: text for query_id, text in queries.items() if text.strip()}
        if len(with_text) == 1:  # without threads, and without a line in the log
            ((query_id, text),) = with_text.items()
            found = search_one(self.index, text, settings.depth, settings.k1, settings.b, self.language)
            return {query_id: found} if found else {}
        return search(self.index, with_text, settings.depth, settings.k1, settings.b, self.threads, self.language)

    def save(self, folder: Path) -> None:
        """Nothing is learned."""
