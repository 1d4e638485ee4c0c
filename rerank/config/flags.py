"""The settings as flags: classes that cyclopts reads, the values of a TOML file, and the resulting configuration."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from cyclopts import App, ArgumentCollection, Parameter, Token

from rerank.config.files import config_names
from rerank.config.functions import flag_name, setting_types, validate
from rerank.config.losses import losses, losses_with, typed
from rerank.config.settings import (
    CollectionSettings,
    Config,
    EncoderSettings,
    FirstStageSettings,
    ListsSettings,
    LossSettings,
    NetworkSettings,
    OutputSettings,
    TrainingSettings,
)
from rerank.utils.errors import UserError, nearest
from rerank.utils.parameters import OptionalPath
from rerank.utils.registry import Setting


def only(section: str, *keys: str) -> Parameter:
    """Restricts a section to the settings that a command takes; the command has no flags for the others."""
    return Parameter(parse=rf"^({'|'.join((section, *keys))})$")


@Parameter(name="*")
@dataclass(frozen=True)
class Flags:
    """The flag --config of every command with settings; a command's own class adds sections of settings."""

    file: Annotated[
        OptionalPath,
        Parameter(
            name="--config",
            metavar="FILE",
            help=f"A TOML file of settings, or one of {config_names()}; flags override it.",
        ),
    ] = None

    def config(self) -> Config:
        """The settings, validated; a section that the command does not take has its defaults."""
        config = self.unchecked()
        validate(config)
        return config

    def unchecked(self) -> Config:
        """The settings, not validated; a subclass with other defaults is converted to the section's own class."""
        sections = {}
        for name, kind in get_type_hints(Config).items():
            if given := getattr(self, name, None):
                sections[name] = kind(**{setting.name: getattr(given, setting.name) for setting in fields(kind)})
        return Config(**sections)


@dataclass(frozen=True)
class AllFlags(Flags):
    """All settings."""

    collection: CollectionSettings = CollectionSettings()
    first_stage: FirstStageSettings = FirstStageSettings()
    encoder: EncoderSettings = EncoderSettings()
    network: NetworkSettings = NetworkSettings()
    lists: ListsSettings = ListsSettings()
    loss: LossSettings = LossSettings()
    training: TrainingSettings = TrainingSettings()
    output: OutputSettings = OutputSettings()


def setting_flags() -> list[str]:
    """The flags of all settings, in the order of the data flow, and of all hyperparameters of losses."""
    settings = [flag_name(section, key) for section, types in setting_types().items() for key in types]
    return [*settings, *(flag_name("loss", key) for key in losses_with())]


def parse(words: Sequence[str], tables: Mapping[str, object], source: str) -> Config:
    """The configuration of flags and the tables of a TOML file; only single values are checked."""

    def read(flags: AllFlags = AllFlags()) -> Config:
        return flags.unchecked()

    app = App(name="sweep", result_action="return_value", help_on_error=False, default_command=read)
    app.config = [lambda app, commands, arguments: fill(arguments, tables, source)]
    config: Config = app(list(words), exit_on_error=False, print_error=False)
    return config


def fill(arguments: ArgumentCollection, tables: Mapping[str, object], path: str | Path) -> None:
    """Fills the settings that no flag gives from the tables of a TOML file.

    The hyperparameters in [loss] belong to the loss that it names. If a flag chooses another loss, its hyperparameters
    come from a table such as [loss.hinge]. Settings that the command does not take are ignored. Raises UserError for an
    unknown key.
    """
    for section, key, value in _settings_of(tables, _chosen_loss(arguments), path):
        flag = flag_name(section, key)
        try:
            argument, keys, _ = arguments.match(flag)
        except ValueError:  # a setting that the command does not take
            continue
        if not any(token.keys == keys for token in argument.tokens):
            argument.append(Token(keyword=flag, value=str(value), source=str(path), keys=keys))


def _settings_of(tables: Mapping[str, object], loss: str | None, path: str | Path) -> Iterator[tuple[str, str, object]]:
    """Yields section, key and value of each setting in the tables of a TOML file; `loss` is the loss of a flag."""
    known = setting_flags()
    for section, table in tables.items():
        if not isinstance(table, dict):
            raise UserError(f"{path}: {section}: expected a section such as [training], got {section} = {table!r}")
        for key, value in (_table_of_loss(table, loss, path) if section == "loss" else table).items():
            if flag_name(section, key) not in known:
                hint = nearest(flag_name(section, key), known, "`rerank train --help all` lists all settings")
                raise UserError(f"{path}: [{section}] {key}: no such setting; {hint}")
            if isinstance(value, dict | list):
                raise UserError(f"{path}: [{section}] {key}: expected one value, got {value}")
            yield section, key, value


def _chosen_loss(arguments: ArgumentCollection) -> str | None:
    tokens = [token for argument in arguments if "--loss.name" in argument.names for token in argument.tokens]
    return tokens[-1].value if tokens else None


def _table_of_loss(table: Mapping[str, Any], chosen: str | None, path: str | Path) -> dict[str, Setting]:
    """The name and the hyperparameters of the `chosen` loss, or of the file's loss if `chosen` is None.

    Raises UserError for a table of an unknown loss, and for a value whose type differs from its default's.
    """
    known = losses()
    own = {key: value for key, value in table.items() if not isinstance(value, dict)}
    others = {key: value for key, value in table.items() if isinstance(value, dict)}
    for other in others:
        if other not in known:
            raise UserError(f"{path}: [loss.{other}]: no such loss; {nearest(other, known)}")
    named = own.get("name", LossSettings().name)
    name = chosen or named
    found = (own if name == named else {"name": name}) | others.get(name, {})
    for key, value in typed(name, found).items():
        default = known.get(name, {}).get(key, value)
        if not isinstance(value, type(default)):
            raise UserError(f"{path}: [loss] {key}: expected {type(default).__name__}, got {value!r}")
    return found
