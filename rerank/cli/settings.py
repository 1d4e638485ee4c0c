"""The settings as flags: a command takes the flags that act on it, and a TOML file that may have all settings."""

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import App, ArgumentCollection, Group, Parameter

from rerank.cli.arguments import WHOLE_HELP
from rerank.config import validate
from rerank.config.files import config_file, config_names
from rerank.config.flags import config_of, fill, parameters
from rerank.runs.settings import read_toml
from rerank.utils.parameters import OptionalPath

ConfigFile = Annotated[
    OptionalPath,
    Parameter(
        name="--config", metavar="FILE", help=f"A TOML file of settings, or one of {config_names()}; flags override it."
    ),
]


@dataclass(eq=False)
class CommandWithSettings:
    """A command whose parameters are its own, --config, and a flag for each of some settings.

    Calling it calls the function with a checked `Config`. The signature is made when it is read, so that losses
    registered after the import have their flags.
    """

    function: Callable[..., None]
    names: tuple[str, ...]
    flags: Mapping[str, Parameter]
    defaults: Mapping[str, Any]

    def __post_init__(self) -> None:
        functools.update_wrapper(self, self.function)
        self.__annotations__ = {}

    def __call__(self, *arguments: Any, **values: Any) -> None:
        """Calls the function with its own arguments, and with the settings as `config`."""
        settings = {name.replace(".", "__"): value for name, value in self.defaults.items()}
        settings |= {name: value for name, value in values.items() if "__" in name}
        config = config_of(settings)
        validate(config)
        own = {name: value for name, value in values.items() if "__" not in name}
        self.function(*arguments, **(own | {"config": config}))

    @property
    def __signature__(self) -> inspect.Signature:
        """What cyclopts reads the flags from."""
        signature = inspect.signature(self.function)
        own = [parameter for parameter in signature.parameters.values() if parameter.name != "config"]
        file = inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ConfigFile)
        return signature.replace(parameters=[*own, file, *self._settings()])

    def _settings(self) -> Iterator[inspect.Parameter]:
        """The parameters of the settings, with the flags and the defaults of this command.

        The first screen of the help shows those with a short flag.
        """
        often = Group("settings", help="Those that are set often. More: --help all.", sort_key=1)
        for section, key, parameter in parameters():
            name = f"{section}.{key}"
            if section in self.names or name in self.names:
                if name in self.flags:
                    parameter = _annotated(parameter, self.flags[name])
                if not WHOLE_HELP.get():
                    short = _short_flags(parameter)
                    shown = Parameter(name=short, alias=(), group=often) if short else Parameter(show=False)
                    parameter = _annotated(parameter, shown)
                yield parameter.replace(default=self.defaults.get(name, parameter.default))


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


def read_config_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Fills the settings from the file of --config; cyclopts calls it once the flags are read."""
    if tokens := next(argument.tokens for argument in arguments if "--config" in argument.names):
        path = config_file(tokens[-1].value)
        fill(arguments, read_toml(path, "--config "), path)
