"""The settings as flags: a command takes the flags that act on it, and a TOML file that has all settings."""

import ast
import difflib
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from cyclopts import App, ArgumentCollection, Group, Parameter, Token

import rerank.config
from rerank.config import Config, flag_name, validate
from rerank.errors import UserError, nearest
from rerank.runs.settings import read_toml
from rerank.utils.parameters import OptionalPath

ConfigFile = Annotated[
    OptionalPath,
    Parameter(name="--config", metavar="FILE", help="A TOML file of settings; flags override it."),
]


def with_settings(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: the command takes --config and the flags of these settings, and is called with a `Config`.

    `names` are sections ("encoder") or single settings ("training.lr"). All others keep their defaults. The command's
    own parameters come first; its `config` is checked by `validate`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        settings = {
            f"{section}__{key}": (section, key) for section, key in all_settings() if _is_in(names, section, key)
        }

        @functools.wraps(command)
        def call(*arguments: Any, **flags: Any) -> None:
            given = {settings[name]: flags.pop(name) for name in settings if name in flags}
            flags.pop("config", None)
            command(*arguments, config=_config(given), **flags)

        signature = inspect.signature(command)
        own = [parameter for parameter in signature.parameters.values() if parameter.name != "config"]
        of_flags = [_parameter(name, *setting) for name, setting in settings.items()]
        file = inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ConfigFile)
        call.__signature__ = signature.replace(parameters=[*own, file, *of_flags])  # type: ignore[attr-defined]
        call.__annotations__ = {}
        return call

    return decorate


def all_settings() -> Iterator[tuple[str, str]]:
    """Section and key of every setting, in the order of the data flow."""
    for section in fields(Config):
        for setting in fields(getattr(Config(), section.name)):
            yield section.name, setting.name


def read_config_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Fills the settings that no flag gives from the file of --config; cyclopts calls it once the flags are read.

    Settings that do not act on the command are ignored. Raises UserError for a key that is no setting at all.
    """
    by_name = {name: argument for argument in arguments for name in argument.names}
    if not (tokens := by_name["--config"].tokens):
        return
    path = Path(tokens[-1].value).expanduser()
    known = {flag_name(*setting): setting for setting in all_settings()}
    for section, table in read_toml(path, "--config ").items():
        if not isinstance(table, dict):
            raise UserError(f"{path}: {section}: expected a section such as [training], got {table}")
        for key, value in table.items():
            flag = flag_name(section, key)
            if flag not in known and flag not in by_name:
                raise UserError(f"{path}: [{section}] {key}: no such setting; {_nearest_flag(flag, list(known))}")
            argument = by_name.get(flag)
            if argument is None or argument.tokens:
                continue
            if isinstance(value, dict | list):
                raise UserError(f"{path}: [{section}] {key}: expected one value, got {value}")
            argument.append(Token(keyword=flag, value=str(value), source=str(path)))


def _nearest_flag(flag: str, flags: list[str]) -> str:
    if not difflib.get_close_matches(flag, flags, n=1):
        return "`rerank train --help` lists them"
    return nearest(flag, flags)


def _is_in(names: tuple[str, ...], section: str, key: str) -> bool:
    return section in names or f"{section}.{key}" in names


def _parameter(name: str, section: str, key: str) -> inspect.Parameter:
    part = getattr(Config(), section)
    position = [field.name for field in fields(Config)].index(section)
    group = Group(section.replace("_", "-"), sort_key=position + 1)
    default = getattr(part, key)
    text = _help_texts()[type(part).__name__, key]
    flag = Parameter(name=flag_name(section, key), group=group, help=text, show_default=default != "")
    annotation = get_type_hints(type(part), include_extras=True)[key]
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[annotation, flag],
    )


@functools.cache
def _help_texts() -> dict[tuple[str, str], str]:
    """(class, field) -> the string below the field in rerank/config.py."""
    texts = {}
    for node in ast.parse(inspect.getsource(rerank.config)).body:
        if isinstance(node, ast.ClassDef):
            for statement, below in zip(node.body, node.body[1:], strict=False):
                match statement, below:
                    case ast.AnnAssign(target=ast.Name(id=key)), ast.Expr(value=ast.Constant(value=str(text))):
                        texts[node.name, key] = text
    return texts


def _config(values: dict[tuple[str, str], Any]) -> Config:
    sections: dict[str, dict[str, Any]] = {}
    for (section, key), value in values.items():
        sections.setdefault(section, {})[key] = value
    default = Config()
    changed = {section: replace(getattr(default, section), **settings) for section, settings in sections.items()}
    config = replace(default, **changed)
    validate(config)
    return config
