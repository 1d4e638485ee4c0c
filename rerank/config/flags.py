"""The settings as flags: what cyclopts reads them from, and the configuration of the values that it gives."""

import functools
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import docstring_parser
from cyclopts import ArgumentCollection, Group, Parameter, Token

from rerank.config.functions import flag_name, registered_helps, replace_setting, setting_types
from rerank.config.losses import losses
from rerank.config.settings import Config
from rerank.utils.errors import UserError, nearest


def parameters() -> Iterator[tuple[str, str, inspect.Parameter]]:
    """Section, key and parameter of each setting; None is the default of a hyperparameter, which has the loss's own."""
    config, helps = Config(), registered_helps()
    for position, (section, types) in enumerate(setting_types().items(), 1):
        group = Group(section.replace("_", "-"), sort_key=position)
        texts = _docstrings(section) | helps.get(section, {})
        for key, kind in types.items():
            default = getattr(getattr(config, section), key, None)
            shown = default not in ("", None)
            flag = Parameter(name=flag_name(section, key), group=group, help=texts[key], show_default=shown)
            parameter = inspect.Parameter(f"{section}__{key}", inspect.Parameter.KEYWORD_ONLY, default=default)
            yield section, key, parameter.replace(annotation=Annotated[kind, flag])


@functools.cache
def _docstrings(section: str) -> dict[str, str | None]:
    """The text below each setting of a section."""
    parsed = docstring_parser.parse_from_object(type(getattr(Config(), section)))
    return {about.arg_name: about.description for about in parsed.params}


def config_of(values: Mapping[str, Any]) -> Config:
    """The configuration with these values of section__key; None is the default of a hyperparameter."""
    config = Config()
    for name, value in values.items():
        if value is not None:
            config = replace_setting(config, name.replace("__", "."), value)
    return config


def setting_flags() -> list[str]:
    """The flags of all settings, in the order of the data flow."""
    return [flag_name(section, key) for section, types in setting_types().items() for key in types]


def fill(arguments: ArgumentCollection, tables: Mapping[str, Any], path: str | Path) -> None:
    """Fills the settings that no flag gives from the tables of a TOML file.

    The hyperparameters in [loss] are those of the loss that it names; a flag may choose another loss, whose
    hyperparameters a table such as [loss.hinge] has. Settings that are no arguments are ignored. Raises UserError for a
    key that is no setting at all.
    """
    by_name = {name: argument for argument in arguments for name in argument.names}
    known = setting_flags()
    if isinstance(tables.get("loss"), dict):
        name = by_name.get(flag_name("loss", "name"))
        chosen = name.tokens[-1].value if name is not None and name.tokens else None
        tables = {**tables, "loss": _table_of_loss(tables["loss"], chosen, path)}
    for section, table in tables.items():
        if not isinstance(table, dict):
            raise UserError(f"{path}: {section}: expected a section such as [training], got {section} = {table!r}")
        for key, value in table.items():
            flag = flag_name(section, key)
            if flag not in known:
                hint = nearest(flag, known, "`rerank train --help all` lists all settings")
                raise UserError(f"{path}: [{section}] {key}: no such setting; {hint}")
            if isinstance(value, dict | list):
                raise UserError(f"{path}: [{section}] {key}: expected one value, got {value}")
            argument = by_name.get(flag)
            if argument is not None and not argument.tokens:
                argument.append(Token(keyword=flag, value=str(value), source=str(path)))


def _table_of_loss(table: Mapping[str, Any], chosen: str | None, path: str | Path) -> dict[str, Any]:
    """The name and the hyperparameters of a loss: of the one that is `chosen`, if it is not None, else the file's."""
    own = {key: value for key, value in table.items() if not isinstance(value, dict)}
    others = {key: value for key, value in table.items() if isinstance(value, dict)}
    for other in others:
        if other not in (known := losses()):
            raise UserError(f"{path}: [loss.{other}]: no such loss; {nearest(other, known)}")
    named = own.get("name", Config().loss.name)
    name = chosen or named
    return (own if name == named else {"name": name}) | others.get(name, {})
