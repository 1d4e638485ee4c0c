"""`rerank retrieve`: retrieves candidates with BM25."""

from dataclasses import dataclass
from typing import Annotated

from rerank.config import CollectionSettings, FirstStageSettings, OutputSettings, TrainingSettings
from rerank.config.flags import Flags, only
from rerank.utils.progress import log


@dataclass(frozen=True)
class RetrieveFlags(Flags):
    """The settings of the first stage; those of training that draw its queries."""

    collection: CollectionSettings = CollectionSettings()
    first_stage: FirstStageSettings = FirstStageSettings()
    training: Annotated[TrainingSettings, only("training", "seed", "validate_queries")] = TrainingSettings()
    output: Annotated[OutputSettings, only("output", "folder")] = OutputSettings()


def retrieve(*, flags: RetrieveFlags = RetrieveFlags()) -> None:
    """Retrieves the candidates of every query with BM25."""
    from rerank.experiments.first_stage import retrieve

    config = flags.config()
    run, settings = retrieve(config), config.first_stage
    if not settings.run:
        log.info(f"BM25 with k1 {settings.k1:g} and b {settings.b:g}")
    print(run)
