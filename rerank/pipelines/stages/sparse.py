"""The stage `sparse`: searches the vectors of a sparse encoder, such as SPLADE."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from rerank.data.types import Fold, Run
from rerank.pipelines.stages.base import Learns, stage
from rerank.pipelines.stages.composition import Composable
from rerank.pipelines.stages.world import World
from rerank.utils.parameters import PathText, Whole, at_least

SPARSE_ENCODER = "naver/splade-v3"
"""The default encoder of the stage."""


@stage
@dataclass(frozen=True)
class SparseStage(Composable):
    """Retrieves the documents whose weights of word pieces have the highest dot product with those of the query.

    >>> SparseStage("naver/splade-v3", depth=100).learns
    'nothing'
    """

    encoder: PathText = SPARSE_ENCODER
    """A sparse encoder of sentence-transformers, inference-free or not: a hub name or a folder."""
    depth: Annotated[Whole, at_least(1)] = 1000
    """Documents of a query."""
    kind: ClassVar[str] = "sparse"
    of: ClassVar[tuple[str, ...]] = ()
    learns: ClassVar[Learns] = "nothing"

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> "SparseRanker":
        """Makes the vectors of the documents, unless they exist."""
        return self.open(world, folder)

    def seconds_to_prepare(self, world: World) -> float:
        """The seconds until all documents are embedded."""
        return world.seconds_to_weigh(self.encoder)

    def open(self, world: World, folder: Path) -> "SparseRanker":
        world.sparse_vectors(self.encoder)
        return SparseRanker(self, world)


@dataclass(frozen=True)
class SparseRanker:
    """Searches the sparse vectors of a collection."""

    settings: SparseStage
    world: World

    def rank(self, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        """The best documents of each query that has text."""
        with_text = {query_id: text for query_id, text in queries.items() if text.strip()}
        return self.world.sparse_vectors(self.settings.encoder).search(with_text, self.settings.depth)

    def save(self, folder: Path) -> None:
        """Nothing is learned."""
