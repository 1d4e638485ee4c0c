"""The protocols of a stage (its settings, which are fitted on a fold) and of its ranker; the registry of all kinds."""

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeGuard, TypeVar, runtime_checkable

from rerank.data.types import Fold, Run
from rerank.pipelines.stages.world import World
from rerank.utils.registry import Registry

Learns = Literal["nothing", "cheaply", "expensively"]
"""Whether a stage learns from judgments. A stage that learns cheaply is fitted many times, so that the stages above it
train on out-of-fold rankings; a stage that learns expensively is fitted once a part."""


class Ranker(Protocol):
    """A fitted stage."""

    def rank(self, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        """Ranks queries, query_id to text; `below` has the runs of the stages below, in the order of `of`.

        A query without documents may be missing from the run.
        """

    def save(self, folder: Path) -> None:
        """Writes the learned files into an existing, empty folder; `Stage.open` reads them."""


@runtime_checkable
class Stage(Protocol):
    """The settings of a stage: a frozen dataclass that is registered with `@stage`.

    `kind` is its name in files; `of` are the names of the stages below, () for a stage that retrieves. Five members
    are optional. `unlearned()` returns the settings for a collection without judgments, for a stage that can do without
    them. `check()` raises ValueError, with the expected value as message, or UserError for contradictory settings. The
    class variable `ignores_validation` is true for a stage that learns nothing from the validation queries of a fold.
    Two measure what takes long, before anything is fitted: `seconds_to_prepare(world)` what is made once for all fits,
    and `seconds_to_fit(world, fold, below)` a fit on a fold and the ranking of its test queries; `below` is a stand-in
    for the ranking of the stage below.
    A field `encoder` is the name of a model and a field `file` that of a file; `fit` records the hashes of both.
    """

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field]]

    @property
    def of(self) -> str | tuple[str, ...]:
        """The names of the stages below."""

    @property
    def learns(self) -> Learns:
        """Whether the stage learns from judgments."""

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> Ranker:
        """Learns from the training and validation queries of a fold.

        `below` has the rankings of these queries. A long training keeps its state in `folder`, to resume from it. A
        stage that learns nothing uses only the world. Raises UserError if there is nothing to learn from.
        """

    def open(self, world: World, folder: Path) -> Ranker:
        """Opens the ranker that was saved into a folder. Raises UserError if files are missing or damaged."""


StageClass = type[Any]
"""A class whose instances are a `Stage`; its constructor takes the fields of the class."""

STAGES: Registry[StageClass] = Registry("stage")
"""The settings classes by kind."""

BI_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
"""The default bi-encoder of stages."""

Settings = TypeVar("Settings", bound=type)


def stage(settings: Settings) -> Settings:
    """Registers the settings of a kind of stage; a class decorator, above `@dataclass(frozen=True)`.

    >>> from dataclasses import dataclass
    >>> @stage
    ... @dataclass(frozen=True)
    ... class ReversedStage:
    ...     of: str
    ...     kind: ClassVar[str] = "reversed"
    >>> STAGES["reversed"]("bm25")
    ReversedStage(of='bm25')
    >>> del STAGES["reversed"]
    """
    STAGES.register(settings.kind, settings)  # type: ignore[attr-defined]
    return settings


def stage_kinds() -> Registry[StageClass]:
    """All kinds by name: those of this package, of plug-ins, and others that are registered."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"rerank.pipelines.stages.{module.name}")
    return STAGES


def expect_one_below(settings: Stage) -> None:
    """Raises ValueError unless a stage has exactly one stage below it."""
    if len(below(settings)) != 1:
        raise ValueError("expected one stage, whose documents it ranks")


def below(settings: Stage) -> tuple[str, ...]:
    """The names of the stages below; () for a stage that retrieves, or before `>>` sets them."""
    return tuple(filter(None, (settings.of,) if isinstance(settings.of, str) else settings.of))


def is_stage(value: object) -> TypeGuard[Stage]:
    """Whether a value is the settings of a stage; a class of settings is not."""
    return isinstance(value, Stage) and not isinstance(value, type)


def takes_stages(settings: Stage) -> bool:
    """Whether a stage re-ranks the documents of stages below: `of` is then a field of its settings."""
    return any(field.name == "of" for field in fields(settings))
