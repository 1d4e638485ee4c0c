"""Reads GRID.toml and builds its cells: ordinary configurations, each with a name of its own."""

import functools
import inspect
import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cyclopts

from rerank.config import Config, replace_setting, sections
from rerank.config.files import config_file
from rerank.config.flags import config_of, fill, parameters
from rerank.config.functions import describe_hyperparameters
from rerank.runs.settings import read_toml
from rerank.utils.errors import UserError, nearest

KEYS = ("config", "fold", "grid")
SHORT = ("loss", "training")
"""The sections that are left out of a cell's name: loss.alpha = 1 is alpha=1."""


class Grid(NamedTuple):
    """A GRID.toml: the configuration that it changes (None: the defaults), the fold, tables of setting -> values."""

    config: Path | None
    fold: str
    tables: list[dict[str, list[Any]]]


def read_grid(path: Path) -> Grid:
    """Reads `config` (relative to the file, or a name such as mq2008), `fold` and the `[[grid]]` tables of settings.

    Raises UserError for a file that is not TOML, an unknown key or setting, and a setting without values.
    """
    given = read_toml(path)
    for key in given:
        if key not in KEYS:
            raise UserError(f"{path}: {key}: no such key; {nearest(key, KEYS)}")
    tables = given.get("grid")
    if not isinstance(tables, list) or not tables:
        raise UserError(f"{path}: expected one or more [[grid]] tables of settings and their values, got none")
    config = config_file(given["config"], base=path.parent) if "config" in given else None
    return Grid(config, str(given.get("fold", "all")), [_table(path, i, table) for i, table in enumerate(tables, 1)])


def cells(grid: Grid, base: dict[str, Any], source: str, flags: Sequence[str]) -> list[Config]:
    """Every combination of each table's values, on top of the sections `base` (read from `source`) and the flags.

    A cell's name (output.name) is its loss and the settings of its table, so that it stays the same when the grid
    grows, and the seed if it is not 0, so that a grid can be repeated with --seed 1 in the same folder.
    Raises UserError if two cells would have the same name, and what the command line raises for a wrong flag or value.
    """
    plain = _parse(base, source, flags)
    if plain.output.name:
        raise UserError(f"--name {plain.output.name}: a sweep names its cells itself; use another --output.folder")

    @functools.cache  # parsing is slow, so each value of a setting is parsed once
    def typed(setting: str, text: str) -> Any:
        """The value as the command line reads it."""
        config = _parse(base, source, [*flags, f"--{setting.replace('_', '-')}={text}"])
        section, _, key = setting.partition(".")
        return sections(config)[section][key]

    seed = ["training.seed"] if plain.training.seed else []
    found: dict[str, Config] = {}
    for table in grid.tables:
        for combination in itertools.product(*table.values()):
            config = plain
            for key, value in zip(table, combination, strict=True):
                config = replace_setting(config, key, typed(key, str(value)))
            config = replace_setting(config, "output.name", cell_name(config, {*table, *seed}))
            if found.setdefault(config.output.name, config) != config:
                raise UserError(f"two different cells of the grid would be called {config.output.name}")
    return list(found.values())


def cell_name(config: Config, settings: Iterable[str]) -> str:
    """The loss and the values of these settings, in the configuration's order: smoothi-metric=ndcg_10-alpha=1.

    Characters that file names should not have, such as the @ of ndcg@10, become _.
    """
    parts = [config.loss.name]
    for table, values in sections(config).items():
        for key, value in values.items():
            if f"{table}.{key}" in settings and (table, key) != ("loss", "name"):
                text = f"{value:.12g}" if isinstance(value, float) else str(value)
                parts.append(f"{key if table in SHORT else f'{table}.{key}'}={text}")
    return re.sub(r"[^\w.=+-]", "_", "-".join(parts))


def _table(path: Path, number: int, table: dict[str, Any]) -> dict[str, list[Any]]:
    where = f"{path}: [[grid]] table {number}"
    valid = [f"{name}.{key}" for name, values in sections(Config()).items() for key in values if name != "output"]
    valid += [f"loss.{key}" for key in describe_hyperparameters()]
    settings: dict[str, list[Any]] = {}
    for key, values in _flat(table).items():
        if key not in valid:
            raise UserError(f"{where}: {key}: no such setting; {nearest(key, valid)}")
        settings[key] = values if isinstance(values, list) else [values]
        if not settings[key] or any(isinstance(value, (list, dict)) for value in settings[key]):
            raise UserError(f"{where}: {key}: got {values}, expected a value or an array of values")
    return settings


def _flat(table: dict[str, Any], above: str = "") -> dict[str, Any]:
    """loss.alpha = 1 and "loss.alpha" = 1 mean the same."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value}
    return flat


def _parse(base: dict[str, Any], source: str, words: Sequence[str]) -> Config:
    app = cyclopts.App(name="sweep", result_action="return_value", help_on_error=False)
    app.config = [lambda app, commands, arguments: fill(arguments, base, source)]

    def given(**values: Any) -> Config:
        return config_of(values)

    given.__signature__ = inspect.Signature([parameter for _, _, parameter in parameters()])  # type: ignore[attr-defined]
    given.__annotations__ = {}
    app.default(given)
    config: Config = app(list(words), exit_on_error=False, print_error=False)
    return config
