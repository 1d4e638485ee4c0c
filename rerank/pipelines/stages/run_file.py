"""The stage `run`: the ranking of a TREC run file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rerank.config.files import check_file
from rerank.data.runs import read_run
from rerank.data.trec import new_file
from rerank.data.types import Fold, Run
from rerank.pipelines.stages.base import Learns, stage
from rerank.pipelines.stages.composition import Composable
from rerank.pipelines.stages.world import World
from rerank.utils.errors import UserError
from rerank.utils.parameters import PathText

KEPT = "run.txt.gz"
"""The copy of the run in the stage's folder, with all digits of its scores."""


@stage
@dataclass(frozen=True)
class RunFileStage(Composable):
    """Ranks queries as a TREC run file does; a pipeline with it can rank only the queries of the file.

    >>> RunFileStage("bm25.run").kind
    'run'
    """

    file: PathText
    """A TREC run file, .gz or not."""
    kind: ClassVar[str] = "run"
    of: ClassVar[tuple[str, ...]] = ()
    learns: ClassVar[Learns] = "nothing"

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> "RunFileRanker":
        check_file("stage of kind run:", self.file)
        return RunFileRanker(self.file, read_run(self.file), world)

    def open(self, world: World, folder: Path) -> "RunFileRanker":
        return RunFileRanker(self.file, read_run(folder / KEPT), world)


@dataclass(frozen=True)
class RunFileRanker:
    """Ranks with the run of a file; a query of the collection that the file lacks has no documents."""

    file: str
    run: Run
    world: World

    def rank(self, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        """The run of these queries. Raises UserError if neither the file nor the collection has one of them."""
        found = {query_id: self.run[query_id] for query_id in queries if query_id in self.run}
        if queries and not found and self.world.collection.queries.keys().isdisjoint(queries):
            raise UserError(
                f"{self.file}: has no query {next(iter(queries))}: a stage of kind run ranks only the queries of its "
                "file; take a bm25 or dense stage to rank others"
            )
        return found

    def save(self, folder: Path) -> None:
        """Copies the run, so that a fitted pipeline needs no file outside its folder."""
        with new_file(folder / KEPT) as out:
            for query_id, scores in self.run.items():
                lines = (f"{query_id} Q0 {doc_id} 0 {score!r} run\n" for doc_id, score in scores.items())
                out.write("".join(lines).encode())
