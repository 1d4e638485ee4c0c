"""The settings as flags: a command takes the flags that act on it, and a TOML file that may have all settings."""

import ast
import difflib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints, is_typeddict

from cyclopts import App, ArgumentCollection, Group, Parameter, Token

from rerank.config import Config, flag_name, validate
from rerank.runs.settings import read_toml
from rerank.utils.errors import UserError, nearest
from rerank.utils.parameters import OptionalPath
from rerank.utils.registry import describe_losses, describe_poolings

ConfigFile = Annotated[
    OptionalPath,
    Parameter(name="--config", metavar="FILE", help="A TOML file of settings; flags override it."),
]


class CommandWithSettings:
    """A command whose parameters are its own, --config, and a flag for each of some settings.

    Calling it calls the function with a checked `Config`. The signature is made when it is read, so that losses
    registered after the import have their flags.
    """

    def __init__(
        self,
        function: Callable[..., None],
        names: tuple[str, ...],
        aliases: Mapping[str, str] = {},
        defaults: Mapping[str, Any] = {},
    ) -> None:
        functools.update_wrapper(self, function)
        self.names, self.aliases, self.defaults = names, aliases, defaults
        self.__annotations__ = {}

    def __call__(self, *arguments: Any, **flags: Any) -> None:
        """Calls the function with its own arguments, and with the settings as `config`."""
        settings = {name.replace(".", "__"): value for name, value in self.defaults.items()}
        settings |= {name: flags.pop(name) for name in self._settings() if name in flags}
        flags.pop("config", None)
        self.__wrapped__(*arguments, config=_config(settings), **flags)  # type: ignore[attr-defined]

    @property
    def __signature__(self) -> inspect.Signature:
        """What cyclopts reads the flags from."""
        signature = inspect.signature(self.__wrapped__)  # type: ignore[attr-defined]
        own = [parameter for parameter in signature.parameters.values() if parameter.name != "config"]
        file = inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ConfigFile)
        return signature.replace(parameters=[*own, file, *self._settings().values()])

    def _settings(self) -> dict[str, inspect.Parameter]:
        return {
            parameter.name: self._of_command(f"{section}.{key}", parameter)
            for section, key, parameter in _parameters()
            if section in self.names or f"{section}.{key}" in self.names
        }

    def _of_command(self, name: str, parameter: inspect.Parameter) -> inspect.Parameter:
        """The parameter with the name and the default that this command has for it."""
        if alias := self.aliases.get(name):
            given = [item.alias for item in parameter.annotation.__metadata__ if isinstance(item, Parameter)]
            names = (*itertools.chain.from_iterable(filter(None, given)), alias)
            parameter = parameter.replace(annotation=Annotated[parameter.annotation, Parameter(alias=names)])
        return parameter.replace(default=self.defaults.get(name, parameter.default))


def with_settings(
    *names: str, aliases: Mapping[str, str] = {}, defaults: Mapping[str, Any] = {}
) -> Callable[[Callable[..., None]], CommandWithSettings]:
    """A decorator: the command takes --config and the flags of these settings, and is called with a `Config`.

    `names` are sections ("encoder") or single settings ("training.lr"). All other settings have their defaults.
    `aliases` are more flags of single settings, and `defaults` their defaults where the command has others.
    """
    return lambda function: CommandWithSettings(function, names, aliases, defaults)


def setting_flags() -> list[str]:
    """The flags of all settings, in the order of the data flow."""
    return [flag_name(section, key) for section, key, _ in _parameters()]


def read_config_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Fills the settings that no flag gives from the file of --config; cyclopts calls it once the flags are read.

    Settings that do not act on the command are ignored. Raises UserError for a key that is no setting at all.
    """
    by_name = {name: argument for argument in arguments for name in argument.names}
    if not (tokens := by_name["--config"].tokens):
        return
    path = Path(tokens[-1].value).expanduser()
    known = setting_flags()
    for section, table in read_toml(path, "--config ").items():
        if not isinstance(table, dict):
            raise UserError(f"{path}: {section}: expected a section such as [training], got {section} = {table!r}")
        for key, value in table.items():
            flag = flag_name(section, key)
            if flag not in known:
                raise UserError(f"{path}: [{section}] {key}: no such setting; {_nearest_flag(flag, known)}")
            argument = by_name.get(flag)
            if argument is None or argument.tokens:
                continue
            several = key == "run" and section.replace("-", "_") == "first_stage" and isinstance(value, list) and value
            if not several and isinstance(value, dict | list):
                raise UserError(f"{path}: [{section}] {key}: expected one value, got {value}")
            for one in value if several else [value]:
                argument.append(Token(keyword=flag, value=str(one), source=str(path)))


def _nearest_flag(flag: str, flags: list[str]) -> str:
    if difflib.get_close_matches(flag, flags, n=1):
        return nearest(flag, flags)
    return "`rerank train --help` lists all settings"


def _parameters() -> list[tuple[str, str, inspect.Parameter]]:
    """Section, key and parameter of each setting; each hyperparameter of a loss is a setting."""
    losses = tuple((name, tuple(loss.hyperparameters)) for name, loss in describe_losses().items())
    return _parameters_with(losses, tuple(describe_poolings()))


@functools.lru_cache(maxsize=1)  # cyclopts reads a signature a dozen times
def _parameters_with(
    losses: tuple[tuple[str, tuple[str, ...]], ...], poolings: tuple[str, ...]
) -> list[tuple[str, str, inspect.Parameter]]:
    """The parameters while these functions are registered."""
    return list(_make_parameters())


def _make_parameters() -> Iterator[tuple[str, str, inspect.Parameter]]:
    default = Config()
    for position, field in enumerate(fields(Config), 1):
        section = getattr(default, field.name)
        group = Group(field.name.replace("_", "-"), sort_key=position)
        for key, annotation in get_type_hints(type(section), include_extras=True).items():
            base = getattr(annotation, "__origin__", annotation)
            if is_typeddict(base):
                for inner, of_inner in get_type_hints(base, include_extras=True).items():
                    yield field.name, inner, _parameter(field.name, inner, _or_none(of_inner), None, group)
            else:
                described = any(getattr(item, "help", None) for item in getattr(annotation, "__metadata__", ()))
                text = None if described else _help_texts().get((type(section).__name__, key))
                yield field.name, key, _parameter(field.name, key, annotation, getattr(section, key), group, text)


def _or_none(annotation: Any) -> Any:
    """The annotation of a flag that may be left out: cyclopts checks defaults too, where pydantic is imported."""
    if about := getattr(annotation, "__metadata__", ()):
        return Annotated[annotation.__origin__ | None, *about]
    return annotation | None


def _parameter(
    section: str, key: str, annotation: Any, default: Any, group: Group, text: str | None = None
) -> inspect.Parameter:
    flag = Parameter(name=flag_name(section, key), group=group, show_default=default not in ("", None))
    described = Annotated[annotation, Parameter(help=text), flag] if text else Annotated[annotation, flag]
    return inspect.Parameter(f"{section}__{key}", inspect.Parameter.KEYWORD_ONLY, default=default, annotation=described)


@functools.cache
def _help_texts() -> dict[tuple[str, str], str]:
    """(class, field) -> the string below the field in the source of a section."""
    texts = {}
    for section in (type(getattr(Config(), field.name)) for field in fields(Config)):
        (node,) = ast.parse(inspect.getsource(section)).body
        assert isinstance(node, ast.ClassDef)
        for statement, below in zip(node.body, node.body[1:], strict=False):
            match statement, below:
                case ast.AnnAssign(target=ast.Name(id=key)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[node.name, key] = text
    return texts


def _config(values: dict[str, Any]) -> Config:
    """The configuration with these values of section__key; a key that is no field is a hyperparameter of the loss."""
    sections: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        section, _, key = name.partition("__")
        sections.setdefault(section, {})[key] = value
    config = Config()
    for name, given in sections.items():
        section = getattr(config, name)
        keys = {field.name for field in fields(section)}
        if extra := {key: value for key, value in given.items() if key not in keys and value is not None}:
            given["hyperparameters"] = extra
        config = replace(config, **{name: replace(section, **{k: v for k, v in given.items() if k in keys})})
    validate(config)
    return config
