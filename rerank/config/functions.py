"""What is done with a configuration: its sections as dictionaries, a setting replaced, its values checked.

The losses and the poolings are those of the package's source, and those that plug-ins and notebooks register.
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from cyclopts import default_name_transform

from rerank.config.files import check_files
from rerank.config.languages import check_language
from rerank.config.settings import Config
from rerank.utils.errors import UserError
from rerank.utils.json_files import check_shape
from rerank.utils.parameters import Whole, validators
from rerank.utils.plugins import load_plugins
from rerank.utils.registry import PACKAGE, Hyperparameter, Registered, describe, registered


def sections(config: Config) -> dict[str, dict[str, Any]]:
    """The settings by section and key, as in config.toml.

    All hyperparameters of the loss are keys of its section, in the order of its signature; those that are not given
    have the loss's defaults.
    """
    by_section = asdict(config)
    given = by_section["loss"].pop("hyperparameters")
    known = describe_losses().get(config.loss.name)
    defaults = {key: found.default for key, found in known.hyperparameters.items()} if known else {}
    by_section["loss"] |= defaults | given
    return by_section


def replace_setting(config: Config, key: str, value: Any) -> Config:
    """The configuration with another value of a setting, such as training.lr or loss.alpha."""
    name, _, key = key.partition(".")
    section = getattr(config, name)
    if name == "loss" and key != "name":
        key, value = "hyperparameters", section.hyperparameters | {key: value}
    return replace(config, **{name: replace(section, **{key: value})})


def setting_types() -> dict[str, dict[str, Any]]:
    """The annotated type of each setting, by section and key; each hyperparameter of any loss is a setting."""
    types = {name: get_type_hints(kind, include_extras=True) for name, kind in get_type_hints(Config).items()}
    del types["loss"]["hyperparameters"]
    for key, losses in describe_hyperparameters().items():  # None stands for the default of the loss
        kinds = (Whole if of_loss.type is int else of_loss.type for of_loss in losses.values())
        types["loss"][key] = Union[*kinds, None]
    return types


def flag_name(section_name: str, key: str) -> str:
    """The flag of a setting.

    >>> flag_name("first_stage", "k1")
    '--first-stage.k1'
    """
    return f"--{default_name_transform(section_name)}.{default_name_transform(key)}"


def validate(config: Config) -> None:
    """Raises UserError for settings that are invalid, that contradict each other, or that name a missing file."""
    types = setting_types()
    for name, settings in sections(config).items():
        for key, value in settings.items():
            validate_setting(flag_name(name, key), value, types[name].get(key))
    check_language(config.collection.language)
    check_files(config)


def check_types(tables: Mapping[str, Any]) -> None:
    """Raises ValueError for a section that is no table, and for a value whose type is not that of its setting.

    A value may be None, and there may be keys that are no settings: other versions have them.
    """
    check_shape(tables, dict[str, dict[str, Any]])
    for section, types in setting_types().items():
        for key, value in tables.get(section, {}).items():
            if key in types and value is not None:
                check_shape(value, types[key], f" under [{section}] {key}")


def validate_setting(flag: str, value: Any, annotation: Any) -> None:
    """Raises UserError, which begins with `flag`, for a value that its annotated type does not allow."""
    try:
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("expected a finite number")
        if get_origin(annotation) is Literal and value not in get_args(annotation):
            raise ValueError(f"expected {' or '.join(get_args(annotation))}")
        for validator in validators(annotation):
            validator(annotation, value)
    except ValueError as error:
        raise UserError(f"{flag}: got {value}, {error}") from error


def describe_losses() -> dict[str, Registered]:
    """All losses by name: those of rerank/losses, and those registered since."""
    return _with_imported(registered(PACKAGE / "losses", "loss"), "rerank.losses", "LOSSES")


def describe_poolings() -> dict[str, Registered]:
    """All poolings by name: those of rerank/models/pooling.py, and those registered since."""
    return _with_imported(registered(PACKAGE / "models" / "pooling.py", "pooling"), "rerank.models.pooling", "POOLINGS")


def describe_hyperparameters() -> dict[str, dict[str, Hyperparameter]]:
    """The hyperparameters of all losses: for each name, the losses that have it.

    >>> describe_hyperparameters()["margin"]["hinge"].default
    1.0
    """
    losses: dict[str, dict[str, Hyperparameter]] = {}
    for loss in describe_losses().values():
        for key, hyperparameter in loss.hyperparameters.items():
            losses.setdefault(key, {})[loss.name] = hyperparameter
    return losses


def registered_helps() -> dict[str, dict[str, str]]:
    """Section -> key -> help of the settings that choose what is registered, or are read from it."""
    hyperparameters = {key: _help(losses) for key, losses in describe_hyperparameters().items()}
    poolings = ", ".join(describe_poolings())
    return {
        "loss": {"name": f"One of {', '.join(describe_losses())}.", **hyperparameters},
        "encoder": {"pooling": f"How the scores of a document's passages become its score: one of {poolings}."},
    }


def _help(losses: dict[str, Hyperparameter]) -> str:
    description = next((of_loss.description for of_loss in losses.values() if of_loss.description), "")
    first, _, rest = description.partition(" ")
    description = f"{first.capitalize() if first.isalpha() else first} {rest}"  # p@K and l2 are values
    names: dict[str, list[str]] = {}
    for name, of_loss in losses.items():
        names.setdefault(str(of_loss.default), []).append(name)
    defaults = "; ".join(f"{', '.join(of_value)}: {value}" for value, of_value in names.items())
    return f"{description} [default of {defaults}]"


def _with_imported(read: dict[str, Registered], module: str, register: str) -> dict[str, Registered]:
    """The functions that were read, and those of the module's register, if the module is imported."""
    load_plugins()
    functions = getattr(sys.modules.get(module), register, {})
    added = {name: describe(name, function) for name, function in functions.items() if name not in read}
    return dict(sorted((read | added).items()))
