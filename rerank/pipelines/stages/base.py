"""What a stage is: settings that are fitted on a fold, and a ranker that ranks queries. The registry of all kinds."""

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from rerank.data.types import Fold, Run
from rerank.pipelines.stages.world import World
from rerank.utils.registry import Registry

Learns = Literal["nothing", "cheaply", "expensively"]
"""Whether a stage learns from judgments. What learns cheaply is fitted many times, so that a stage above it learns from
the rankings of queries that it did not learn from; what learns expensively is fitted once a fold."""


class Ranker(Protocol):
    """A fitted stage."""

    def rank(self, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        """Ranks queries, query_id to text; `below` has the runs of the stages below, in the order of `of`.

        A query for which there is no document may be missing from the run.
        """

    def save(self, folder: Path) -> None:
        """Writes what was learned into an existing, empty folder; `Stage.open` reads it."""


class Stage(Protocol):
    """The settings of a stage: a frozen dataclass that is registered with `@stage`.

    `kind` is its name in files; `of` are the names of the stages below, () for a stage that retrieves. Settings that
    learn, but need not, have a method `unlearned`: the settings for a collection without judgments. Settings that can
    contradict each other have a method `check`, which then raises ValueError, whose message is what was expected. If
    what a kind keeps changes its meaning, a class variable `version` counts up, so that `fit` fits it again.
    """

    kind: ClassVar[str]

    @property
    def of(self) -> str | tuple[str, ...]:
        """The names of the stages below."""

    @property
    def learns(self) -> Learns:
        """Whether the stage learns from judgments."""

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> Ranker:
        """Learns from the training and validation queries of a fold.

        `below` has the rankings of these queries. `folder` is where a long training keeps what it resumes from. A stage
        that learns nothing ignores all but the world. Raises UserError if there is nothing to learn from.
        """

    def open(self, world: World, folder: Path) -> Ranker:
        """The ranker that was saved into a folder. Raises UserError if the files are missing or damaged."""


STAGES: Registry[type[Any]] = Registry("stage")
BI_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
"""The bi-encoder of a stage that names no other."""

Settings = TypeVar("Settings", bound=type)


def stage(settings: Settings) -> Settings:
    """Registers the settings of a kind of stage; a class decorator, above `@dataclass(frozen=True)`."""
    STAGES.register(settings.kind, settings)  # type: ignore[attr-defined]
    return settings


def stage_kinds() -> Registry[type[Any]]:
    """All kinds by name: those of this package, of plug-ins, and those registered since."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"rerank.pipelines.stages.{module.name}")
    return STAGES


def expect_one_below(settings: "Stage") -> None:
    """Raises ValueError unless a stage has one stage below it, whose documents it ranks."""
    if len(below(settings)) != 1:
        raise ValueError("expected one stage, whose documents it ranks")


def below(settings: "Stage") -> tuple[str, ...]:
    """The names of the stages below; () if it retrieves, or waits for `>>` to set them."""
    return tuple(filter(None, (settings.of,) if isinstance(settings.of, str) else settings.of))


def takes_stages(settings: Any) -> bool:
    """Whether a stage ranks what others have found: `of` is then a field of its settings."""
    return any(field.name == "of" for field in fields(settings))
