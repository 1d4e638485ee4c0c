"""Reads GRID.toml and builds its cells: configurations with distinct names."""

import functools
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rerank.config import Config, replace_setting, sections
from rerank.config.files import config_file
from rerank.config.flags import parse
from rerank.config.losses import losses_with
from rerank.experiments.runs.settings import read_toml
from rerank.utils.errors import UserError, nearest
from rerank.utils.json_files import shown

Table = dict[str, list[object]]
"""Setting, such as training.lr -> its values."""

KEYS = ("config", "fold", "grid")
"""The keys of GRID.toml."""

LOSS = "loss.name"

SHORT = ("loss", "training")
"""Sections that are left out of a cell's name: loss.alpha = 1 is alpha=1."""


def read_grid(path: Path, flags: Sequence[str] = (), config: Path | None = None) -> tuple[str, list[Config]]:
    """The fold that GRID.toml names, and its cells: every combination of the values of each `[[grid]]` table.

    A cell changes the settings of the flags and of the file `config`. Without `config`, the grid names the file: a path
    relative to GRID.toml, or a name such as mq2008. A cell's name (output.name) has its loss, the settings of its table
    and the seed if it is not 0, so it stays the same when the grid grows. Raises UserError for a malformed file and for
    two cells with the same name, and the errors of the command line for a wrong flag or value.
    """
    given = read_toml(path)
    for key in given:
        if key not in KEYS:
            raise UserError(f"{path}: {key}: no such key; {nearest(key, KEYS)}")
    tables = given.get("grid")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        got = "none" if tables in (None, []) else f"grid = {shown(tables)}"
        raise UserError(f"{path}: expected one or more [[grid]] tables of settings and their values, got {got}")
    tables = [_table(path, number, table) for number, table in enumerate(tables, 1)]
    file = config or (config_file(str(given["config"]), base=path.parent) if "config" in given else None)
    base = read_toml(file, "--config " if config else f"{path}: config: ") if file else {}
    return str(given.get("fold", "all")), _cells(tables, base, str(file), flags)


def _cells(tables: list[Table], base: dict[str, object], source: str, flags: Sequence[str]) -> list[Config]:
    """The cells, based on the sections `base`, which were read from `source`, and on the flags."""
    plain = parse(flags, base, source)
    if plain.output.name:
        raise UserError(f"--name {plain.output.name}: a sweep names its cells itself; use another --output.folder")

    @functools.cache  # parsing is slow
    def parsed(setting: str, text: str) -> Config:
        return parse([*flags, f"--{setting.replace('_', '-')}={text}"], base, source)

    seed = ["training.seed"] if plain.training.seed else []
    found: dict[str, Config] = {}
    for table in tables:
        for combination in itertools.product(*table.values()):
            config = plain
            for key, value in zip(table, combination, strict=True):
                section, _, name = key.partition(".")
                with_value = parsed(key, str(value))
                if key == LOSS:  # with the file's hyperparameters of this loss
                    config = replace(config, loss=with_value.loss)
                else:
                    config = replace_setting(config, key, sections(with_value)[section][name])
            config = replace_setting(config, "output.name", cell_name(config, {*table, *seed}))
            if found.setdefault(config.output.name, config) != config:
                raise UserError(f"two different cells of the grid would be called {config.output.name}")
    return list(found.values())


def cell_name(config: Config, settings: Iterable[str]) -> str:
    """The loss and the values of these settings, in the order of the configuration.

    >>> cell_name(Config(), ["loss.metric", "loss.alpha"])
    'smoothi-metric=ndcg-alpha=1'
    """
    words = [config.loss.name]
    for table, values in sections(config).items():
        for key, value in values.items():
            if f"{table}.{key}" in settings and (table, key) != ("loss", "name"):
                text = f"{value:.12g}" if isinstance(value, float) else str(value)
                words.append(f"{key if table in SHORT else f'{table}.{key}'}={text}")
    return re.sub(r"[^\w.=+-]", "_", "-".join(words))  # other characters, such as @, do not belong in file names


def _table(path: Path, number: int, table: dict[str, object]) -> Table:
    """The values of each setting of a table; the loss comes first, as its hyperparameters depend on it."""
    where = f"{path}: [[grid]] table {number}"
    valid = [f"{name}.{key}" for name, values in sections(Config()).items() for key in values if name != "output"]
    valid += [f"loss.{key}" for key in losses_with()]
    given: dict[str, object] = {}
    for key, values in table.items():
        given |= (
            {f"{key}.{name}": value for name, value in values.items()} if isinstance(values, dict) else {key: values}
        )
    settings: Table = {}
    for key, values in given.items():
        if key not in valid:
            raise UserError(f"{where}: {key}: no such setting; {nearest(key, valid)}")
        settings[key] = values if isinstance(values, list) else [values]
        if not settings[key] or any(isinstance(value, (list, dict)) for value in settings[key]):
            raise UserError(f"{where}: {key}: got {values}, expected a value or an array of values")
    return dict(sorted(settings.items(), key=lambda setting: setting[0] != LOSS))
