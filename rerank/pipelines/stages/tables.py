"""Converts TOML tables to the settings of stages, and back."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from rerank.config import LossSettings
from rerank.config.functions import validate_setting
from rerank.pipelines.stages.base import Stage, stage_kinds
from rerank.utils.errors import UserError, nearest
from rerank.utils.json_files import check_shape

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SettingsClass = type[Any]
"""A frozen dataclass of settings; its constructor takes its fields."""


def stage_of(table: Mapping[str, object], where: str) -> Stage:
    """The stage of a TOML table with `kind` and the fields of that kind.

    Raises UserError, prefixed with `where`, for an unknown kind or key, a value of a wrong type or out of bounds, and a
    missing field.

    >>> stage_of({"kind": "bm25", "k1": 1.2}, "[stages.first]").k1
    1.2
    """
    values, kinds = dict(table), stage_kinds()
    kind = values.pop("kind", None)
    if kind is None:
        raise UserError(f"{where} kind: is missing; expected one of {', '.join(sorted(kinds))}")
    if not isinstance(kind, str) or kind not in kinds:
        raise UserError(f"{where} kind: got {kind}; {nearest(str(kind), kinds)}")
    made: Stage = _settings_of(kinds[kind], values, where)
    return made


def _settings_of(kind: SettingsClass, values: Mapping[str, object], where: str) -> Any:
    hints = get_type_hints(kind, include_extras=True)
    known = {field.name: field for field in fields(kind) if field.init}
    given = {}
    for key, value in values.items():
        if key not in known:
            raise UserError(f"{where} {key}: no such setting; {nearest(key, known)}")
        given[key] = _value_of(hints[key], value, f"{where} {key}")
    required = [name for name, field in known.items() if name == "of" or _default(field) is MISSING]
    if missing := [name for name in required if name not in given]:
        raise UserError(f"{where} {missing[0]}: is missing; expected a value")
    return kind(**given)


def _value_of(hint: object, value: object, where: str) -> object:
    """A TOML value as the type of a field: a table becomes a settings class, a list a tuple."""
    types = (hint, *get_args(hint))
    section = next((kind for kind in types if isinstance(kind, type) and is_dataclass(kind)), None)
    if isinstance(value, dict) and section:
        return _section_of(section, value, where)
    if section and str not in types:
        raise UserError(f"{where}: got {value}, expected a table of settings")
    try:
        value = check_shape(value, hint)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error
    validate_setting(where, value, hint)
    return value


def _section_of(section: SettingsClass, table: Mapping[str, object], where: str) -> object:
    """The settings of a sub-table; each key of a loss but its name is a hyperparameter."""
    if section is LossSettings:
        hyperparameters = {key: value for key, value in table.items() if key != "name"}
        table = {key: value for key, value in table.items() if key == "name"} | {"hyperparameters": hyperparameters}
    return _settings_of(section, table, where)


def table_of(settings: Stage) -> dict[str, object]:
    """The TOML table of a stage: its kind, the stages below, and the settings that differ from the defaults."""
    return {"kind": settings.kind} | _changed(settings)


def _changed(settings: "DataclassInstance") -> dict[str, object]:
    table: dict[str, object] = {}
    for field in fields(settings):
        value = getattr(settings, field.name)
        if value != _default(field):
            plain = list(value) if isinstance(value, tuple) else value
            table[field.name] = _changed(value) if is_dataclass(value) and not isinstance(value, type) else plain
    if isinstance(hyperparameters := table.pop("hyperparameters", {}), dict):
        table |= hyperparameters
    return table


def _default(field: Field) -> object:
    """The default of a field; MISSING for a required one."""
    return field.default_factory() if field.default_factory is not MISSING else field.default
