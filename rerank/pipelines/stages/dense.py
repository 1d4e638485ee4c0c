"""The stage `dense`: searches the vectors of a bi-encoder, exactly or with an index."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from rerank.data.types import Fold, Run
from rerank.pipelines.stages.base import BI_ENCODER, Learns, stage
from rerank.pipelines.stages.composition import Composable
from rerank.pipelines.stages.world import World
from rerank.utils.parameters import PathText, Whole, at_least


@stage
@dataclass(frozen=True)
class DenseStage(Composable):
    """Retrieves the documents whose best passage is most similar to the query.

    >>> DenseStage("sentence-transformers/all-MiniLM-L6-v2", depth=100).learns
    'nothing'
    """

    encoder: PathText = BI_ENCODER
    """A bi-encoder of sentence-transformers: a hub name or a folder."""
    depth: Annotated[Whole, at_least(1)] = 1000
    """Documents of a query."""
    index: Literal["exact", "faiss"] = "exact"
    """exact: every vector is compared; faiss: only the vectors that an index finds, for millions of documents."""
    kind: ClassVar[str] = "dense"
    of: ClassVar[tuple[str, ...]] = ()
    learns: ClassVar[Learns] = "nothing"

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> "DenseRanker":
        """Makes the vectors of the documents and their index, unless they exist."""
        return self.open(world, folder)

    def seconds_to_prepare(self, world: World) -> float:
        """The seconds until all documents are embedded."""
        return world.seconds_to_embed(self.encoder)

    def open(self, world: World, folder: Path) -> "DenseRanker":
        world.make_vectors(self.encoder, self.index)
        return DenseRanker(self, world)


@dataclass(frozen=True)
class DenseRanker:
    """Searches the vectors of a collection."""

    settings: DenseStage
    world: World

    def rank(self, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        """The best documents of each query that has text."""
        settings = self.settings
        vectors = self.world.query_vectors(settings.encoder, queries)
        return self.world.search(settings.encoder, vectors, settings.depth, settings.index)

    def save(self, folder: Path) -> None:
        """Nothing is learned."""
