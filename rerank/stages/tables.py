"""Stages as TOML tables: a table read as the settings of a stage, and the reverse."""

import functools
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from rerank.config import validate_setting
from rerank.stages.base import Stage, stage_kinds
from rerank.utils.errors import UserError, nearest
from rerank.utils.json_files import check_shape


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
