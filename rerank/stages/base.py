"""What a stage is: settings that are fitted on a fold, and a ranker that ranks queries. The registry of all kinds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from rerank.config import LossSettings
from rerank.data.types import Fold, Run
from rerank.stages.world import World
from rerank.utils.plugins import load_plugins

Learns = Literal["nothing", "cheaply", "expensively"]
"""Whether a stage learns from judgments. What learns cheaply is fitted many times, so that a stage above it learns from
the rankings of queries that it did not learn from; what learns expensively is fitted once a fold."""


class Ranker:
    """A fitted stage."""

    def rank(self, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        """Ranks queries, query_id to text; `below` has the runs of the stages below, in the order of `of`.

        A query for which there is no document may be missing from the run.
        """
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        """Writes what was learned, if anything was, into an existing, empty folder; `Stage.open` reads it."""


class Stage:
    """The settings of a stage: a frozen dataclass that is registered with `@stage`.

    `kind` is its name in files. The field `of` has the names of the stages below; a stage that retrieves has no such
    field. A class may have `learns` as a ClassVar.
    """

    kind: ClassVar[str]

    @property
    def learns(self) -> Learns:
        """Whether the stage learns from judgments."""
        return "nothing"

    def unlearned(self) -> "Stage":
        """The settings for a collection without judgments, if the stage can do without."""
        return self

    def check(self) -> None:
        """Raises ValueError, whose message is what was expected, for settings that contradict each other.

        Raises UserError for a loss that does not exist, or takes other hyperparameters.
        """
        if loss := getattr(self, "loss", None):
            from rerank.training.objective import open_loss  # loads torch

            open_loss(loss_settings(loss), "loss")

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> Ranker:
        """Learns from the training and validation queries of a fold.

        `below` has the rankings of these queries. `folder` is where a long training keeps what it resumes from. A stage
        that learns nothing ignores all but the world. Raises UserError if there is nothing to learn from.
        """
        return self.open(world, folder)

    def open(self, world: World, folder: Path) -> Ranker:
        """The ranker that was saved into a folder. Raises UserError if the files are missing or damaged."""
        raise NotImplementedError


STAGES: dict[str, type[Any]] = {}
"""The registered kinds."""

Settings = TypeVar("Settings", bound=type)


def stage(settings: Settings) -> Settings:
    """Registers the settings of a kind of stage; a class decorator, above `@dataclass(frozen=True)`."""
    STAGES[settings.kind] = settings  # type: ignore[attr-defined]
    return settings


def stage_kinds() -> dict[str, type[Any]]:
    """All kinds by name: those of this package, of plug-ins, and those registered since."""
    load_plugins()
    return STAGES


def loss_settings(loss: str | LossSettings) -> LossSettings:
    """The settings of a loss; those of a name have the loss's own hyperparameters."""
    return LossSettings(loss) if isinstance(loss, str) else loss


def below(settings: Stage) -> tuple[str, ...]:
    """The names of the stages below."""
    of = getattr(settings, "of", ())
    return (of,) if isinstance(of, str) else tuple(of)
