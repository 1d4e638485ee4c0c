"""Arguments and settings that several commands share."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from rerank.config import CollectionSettings, EncoderSettings, FirstStageSettings, OutputSettings, TrainingSettings
from rerank.config.flags import Flags, only
from rerank.config.settings import often
from rerank.utils.parameters import PathText, Pattern, Whole, at_least

Model = Annotated[
    PathText,
    Parameter(
        help="A folder that `rerank fit` wrote; or runs/<collection>/<experiment>/fold1/checkpoint, or any Hugging "
        "Face cross-encoder."
    ),
]
"""The checkpoint or pipeline folder."""

Budget = Annotated[
    str, Parameter(validator=Pattern(r"\d{1,9}(\.\d{1,9})?ms", "milliseconds, such as 100ms"), show_default=False)
]


@dataclass(frozen=True)
class NamedCollection(CollectionSettings):
    """The collection of a command whose model records one."""

    source: Annotated[PathText, often("--collection"), Parameter(show_default=False)] = ""
    """The collection; default: the one that the checkpoint was trained on."""


QUERIES = ("source", "queries", "query_field", "language")
"""The settings of a collection that say which queries are ranked."""

READING = ("max_doc_tokens", "passage_tokens", "passage_overlap", "pooling", "template")
"""The settings of an encoder that say how a trained model reads documents."""


@dataclass(frozen=True)
class RankingFlags(Flags):
    """The settings of commands that rank with a pipeline or a model."""

    collection: Annotated[NamedCollection, only("collection", "source", "language")] = NamedCollection()
    first_stage: Annotated[FirstStageSettings, only("first_stage", "index", "depth", "k1", "b", "threads")] = (
        FirstStageSettings()
    )
    encoder: Annotated[EncoderSettings, only("encoder", *READING)] = EncoderSettings()
    training: Annotated[TrainingSettings, only("training", "device", "precision", "max_tokens_per_forward")] = (
        TrainingSettings()
    )
    output: Annotated[OutputSettings, only("output", "folder")] = OutputSettings()


@dataclass(frozen=True)
class FewCandidates(FirstStageSettings):
    """The first stage of a search: few candidates, as a user waits for a few documents."""

    depth: Annotated[Whole, at_least(1), often("--depth")] = 50
    """Candidates per query."""


@dataclass(frozen=True)
class SearchFlags(RankingFlags):
    """The settings of a search."""

    first_stage: Annotated[FewCandidates, only("first_stage", "index", "depth", "k1", "b", "threads")] = FewCandidates()


def milliseconds(budget: str) -> float | None:
    """The number of milliseconds of a budget such as 100ms; None without a budget."""
    return float(budget.removesuffix("ms")) if budget else None
