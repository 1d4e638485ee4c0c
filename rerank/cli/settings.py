"""The settings as flags: a command takes the flags that act on it, and a TOML file that may have all settings."""

import difflib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Annotated, Any, get_origin, get_type_hints, is_typeddict

import docstring_parser
from cyclopts import App, ArgumentCollection, Group, Parameter, Token

from rerank.cli.words import ALL, SECTION
from rerank.config import Config, flag_name, validate
from rerank.config.named import config_file, config_names
from rerank.config.registered import describe_losses, describe_poolings
from rerank.runs.settings import read_toml
from rerank.utils.errors import UserError, nearest
from rerank.utils.parameters import OptionalPath, PathText

ConfigFile = Annotated[
    OptionalPath,
    Parameter(
        name="--config",
        metavar="FILE",
        help=f"A TOML file of settings, or one of {config_names()}; flags override it.",
    ),
]

OF_CHECKPOINT = Parameter(
    help="Where queries and documents are; default: the collection that the checkpoint was trained on.",
    show_default=False,
)
"""--collection of a command whose model names a collection."""

OF_RANKING = (
    "collection.source",
    "collection.language",
    "first_stage.index",
    "first_stage.depth",
    "first_stage.k1",
    "first_stage.b",
    "first_stage.threads",
    "encoder.pooling",
    "encoder.template",
    "training.device",
    "training.precision",
    "training.max_tokens_per_forward",
    "output.folder",
)
"""The settings that act on what ranks with a pipeline or a model: score, search and serve."""

Model = Annotated[
    PathText,
    Parameter(
        help="The folder that `rerank fit` wrote; or runs/<collection>/<experiment>/fold1/checkpoint, or any Hugging "
        "Face cross-encoder."
    ),
]
"""What ranks."""


class CommandWithSettings:
    """A command whose parameters are its own, --config, and a flag for each of some settings.

    Calling it calls the function with a checked `Config`. The signature is made when it is read, so that losses
    registered after the import have their flags.
    """

    def __init__(
        self,
        function: Callable[..., None],
        names: tuple[str, ...],
        flags: Mapping[str, Parameter],
        defaults: Mapping[str, Any],
    ) -> None:
        functools.update_wrapper(self, function)
        self.names, self.flags, self.defaults = names, flags, defaults
        self.__annotations__ = {}

    def __call__(self, *arguments: Any, **values: Any) -> None:
        """Calls the function with its own arguments, and with the settings as `config`."""
        settings = {name.replace(".", "__"): value for name, value in self.defaults.items()}
        settings |= {name: values.pop(name) for name in self._settings() if name in values}
        values.pop("config", None)
        self.__wrapped__(*arguments, config=_config(settings), **values)  # type: ignore[attr-defined]

    @property
    def __signature__(self) -> inspect.Signature:
        """What cyclopts reads the flags from."""
        signature = inspect.signature(self.__wrapped__)  # type: ignore[attr-defined]
        own = [parameter for parameter in signature.parameters.values() if parameter.name != "config"]
        file = inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ConfigFile)
        return signature.replace(parameters=list(self._of_section([*own, file], [*self._settings().values()])))

    def _of_section(
        self, own: list[inspect.Parameter], settings: list[inspect.Parameter]
    ) -> Iterator[inspect.Parameter]:
        """All parameters; the help shows those of SECTION, on its first screen the settings with a short flag."""
        section, of = SECTION.get(), [parameter.name.partition("__")[0] for parameter in settings]
        sections = [name.replace("_", "-") for name in dict.fromkeys(of)]
        if section not in ("", ALL, *sections):
            raise UserError(f"--help {section}: no such section; {nearest(section, [ALL, *sections])}")
        listed = f"Those that are set often. More: --help SECTION, one of {', '.join([*sections, ALL])}."
        often = Group("settings", help=listed, sort_key=1)
        hidden = Parameter(show=False)
        for parameter in own:
            yield parameter if section in ("", ALL) else _annotated(parameter, hidden)
        for name, parameter in zip(of, settings, strict=True):
            if not section:
                short = _short_flags(parameter)
                yield _annotated(parameter, Parameter(name=short, alias=(), group=often) if short else hidden)
            else:
                yield parameter if section in (ALL, name.replace("_", "-")) else _annotated(parameter, hidden)

    def _settings(self) -> dict[str, inspect.Parameter]:
        """The parameters of the settings, with the flags and the defaults of this command."""
        chosen = {}
        for section, key, parameter in _parameters():
            name = f"{section}.{key}"
            if section in self.names or name in self.names:
                if name in self.flags:
                    parameter = parameter.replace(annotation=Annotated[parameter.annotation, self.flags[name]])
                chosen[parameter.name] = parameter.replace(default=self.defaults.get(name, parameter.default))
        return chosen


def _annotated(parameter: inspect.Parameter, about: Parameter) -> inspect.Parameter:
    return parameter.replace(annotation=Annotated[parameter.annotation, about])


def _short_flags(parameter: inspect.Parameter) -> tuple[str, ...]:
    """Such as --loss for --loss.name; () if there is none."""
    given = [about.alias or () for about in parameter.annotation.__metadata__ if isinstance(about, Parameter)]
    return tuple(dict.fromkeys(itertools.chain.from_iterable(given)))


def with_settings(
    *names: str, flags: Mapping[str, Parameter] = {}, defaults: Mapping[str, Any] = {}
) -> Callable[[Callable[..., None]], CommandWithSettings]:
    """A decorator: the command takes --config and the flags of these settings, and is called with a `Config`.

    `names` are sections ("encoder") or single settings ("training.lr"). All other settings have their defaults.
    `flags` and `defaults` are what is different for single settings in this command.
    """
    return lambda function: CommandWithSettings(function, names, flags, defaults)


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
    path = config_file(tokens[-1].value)
    known = setting_flags()
    for section, table in read_toml(path, "--config ").items():
        if not isinstance(table, dict):
            raise UserError(f"{path}: {section}: expected a section such as [training], got {section} = {table!r}")
        for key, value in table.items():
            flag = flag_name(section, key)
            if flag not in known:
                near = difflib.get_close_matches(flag, known, n=1)
                hint = nearest(flag, known) if near else "`rerank train --help all` lists all settings"
                raise UserError(f"{path}: [{section}] {key}: no such setting; {hint}")
            argument = by_name.get(flag)
            if argument is None or argument.tokens:
                continue
            if isinstance(value, dict | list):
                raise UserError(f"{path}: [{section}] {key}: expected one value, got {value}")
            argument.append(Token(keyword=flag, value=str(value), source=str(path)))


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
        texts = {
            about.arg_name: about.description for about in docstring_parser.parse_from_object(type(section)).params
        }
        for key, annotation in get_type_hints(type(section), include_extras=True).items():
            base: Any = annotation
            about: tuple[Any, ...] = ()
            if get_origin(annotation) is Annotated:
                base, about = annotation.__origin__, annotation.__metadata__
            if is_typeddict(base):  # the hyperparameters of the losses, whose flags may be left out
                for name, hint in get_type_hints(base, include_extras=True).items():
                    yield (
                        field.name,
                        name,
                        _parameter(field.name, name, hint.__origin__ | None, None, group, hint.__metadata__),
                    )
            else:
                about = (Parameter(help=texts.get(key)), *about)  # an own help comes first
                yield field.name, key, _parameter(field.name, key, base, getattr(section, key), group, about)


def _parameter(
    section: str, key: str, base: Any, default: Any, group: Group, about: tuple[Any, ...]
) -> inspect.Parameter:
    flag = Parameter(name=flag_name(section, key), group=group, show_default=default not in ("", None))
    annotation = Annotated[base, *about, flag]
    return inspect.Parameter(
        f"{section}__{key}", inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


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
