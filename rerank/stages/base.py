"""What a stage is: settings that are fitted on a fold, and a ranker that ranks queries. The registry of all kinds."""

import functools
import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, Protocol, TypeVar, get_args, get_origin, get_type_hints

from rerank.config import validate_setting
from rerank.data.types import Fold, Run
from rerank.stages.world import World
from rerank.utils.errors import UserError, nearest
from rerank.utils.json_files import check_shape

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

    `kind` is its name in files; `of` are the names of the stages below, () for a stage that retrieves.
    """

    kind: ClassVar[str]

    @property
    def of(self) -> str | tuple[str, ...]:
        """The names of the stages below."""

    @property
    def learns(self) -> Learns:
        """Whether the stage learns from judgments."""

    def check(self) -> None:
        """Raises ValueError, whose message is what was expected, for settings that contradict each other."""

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> Ranker:
        """Learns from the training and validation queries of a fold.

        `below` has the rankings of these queries. `folder` is where a long training keeps what it resumes from. A stage
        that learns nothing ignores all but the world. Raises UserError if there is nothing to learn from.
        """

    def open(self, world: World, folder: Path) -> Ranker:
        """The ranker that was saved into a folder. Raises UserError if the files are missing or damaged."""


STAGES: dict[str, type[Any]] = {}
"""The registered kinds."""

Settings = TypeVar("Settings", bound=type)


def stage(settings: Settings) -> Settings:
    """Registers the settings of a kind of stage; a class decorator, above `@dataclass(frozen=True)`."""
    STAGES[settings.kind] = settings  # type: ignore[attr-defined]
    return settings


def stage_kinds() -> dict[str, type[Any]]:
    """All kinds by name: those of this package, and those registered since."""
    _import_stages()
    return STAGES


@functools.cache
def _import_stages() -> None:
    package = importlib.import_module("rerank.stages")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"rerank.stages.{module.name}")


def expect_one_below(settings: "Stage") -> None:
    """Raises ValueError unless a stage has one stage below it, whose documents it ranks."""
    if len(below(settings)) != 1:
        raise ValueError("expected one stage, whose documents it ranks")


def below(settings: "Stage") -> tuple[str, ...]:
    """The names of the stages below."""
    return (settings.of,) if isinstance(settings.of, str) else tuple(settings.of)


def stage_of(table: Mapping[str, Any], where: str) -> Stage:
    """The stage of a TOML table with `kind` and the fields of that kind.

    Raises UserError, which begins with `where`, for an unknown kind or key, a value of another type or out of bounds,
    and a field that is missing.
    """
    values = dict(table)
    kind = values.pop("kind", None)
    kinds = stage_kinds()
    if kind not in kinds:
        if kind is None:
            raise UserError(f"{where} kind: is missing; expected one of {', '.join(sorted(kinds))}")
        raise UserError(f"{where} kind: got {kind}; {nearest(str(kind), kinds)}")
    made: Stage = _settings_of(kinds[kind], values, where)
    return made


def _settings_of(kind: type[Any], values: Mapping[str, Any], where: str) -> Any:
    hints = get_type_hints(kind, include_extras=True)
    known = {field.name: field for field in fields(kind) if field.init}
    given = {}
    for key, value in values.items():
        if key not in known:
            raise UserError(f"{where} {key}: no such setting; {nearest(key, known)}")
        given[key] = _value_of(hints[key], value, f"{where} {key}")
    if missing := [name for name, field in known.items() if _is_required(field) and name not in given]:
        raise UserError(f"{where} {missing[0]}: is missing; expected a value")
    return kind(**given)


def _is_required(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _value_of(hint: Any, value: Any, where: str) -> Any:
    """A value of TOML as a field's type: a table becomes the settings that the field takes, a list a tuple."""
    base = get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
    alternatives = get_args(base) if get_origin(base) is UnionType else (base,)
    if isinstance(value, dict) and (section := next((one for one in alternatives if is_dataclass(one)), None)):
        return _section_of(section, value, where)
    try:
        if isinstance(value, list):
            value = tuple(value)
        elif isinstance(value, int) and not isinstance(value, bool) and base is float:
            value = float(value)
        plain = [one for one in alternatives if not is_dataclass(one)]
        if plain:
            check_shape(list(value) if isinstance(value, tuple) else value, functools.reduce(lambda a, b: a | b, plain))
        validate_setting(where, value, hint)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error
    return value


def _section_of(section: Any, table: dict[str, Any], where: str) -> Any:
    """The settings of a sub-table; a key of `[….loss]` that is no field of its settings is a hyperparameter."""
    if "hyperparameters" in (names := {field.name for field in fields(section)}):
        others = {key: value for key, value in table.items() if key not in names}
        table = {key: value for key, value in table.items() if key in names}
        return section(**table, hyperparameters=others) if others else section(**table)
    return _settings_of(section, table, where)


def table_of(settings: Stage) -> dict[str, Any]:
    """The TOML table of a stage: its kind, the stages below, and the settings that differ from their defaults."""
    table: dict[str, Any] = {"kind": settings.kind} | ({"of": _as_toml(settings.of)} if settings.of else {})
    for field in fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, field.name)
        if field.name != "of" and (_is_required(field) or value != _default(field)):
            table[field.name] = _as_toml(value)
    return table


def _default(field: Any) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _as_toml(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        table = asdict(value)
        table |= table.pop("hyperparameters", {})
        defaults = {field.name: _default(field) for field in fields(value) if not _is_required(field)}
        return {key: _as_toml(one) for key, one in table.items() if key not in defaults or one != defaults[key]}
    return list(value) if isinstance(value, tuple) else value
