"""Functions of a configuration: sections as dictionaries, replacing a setting, validation."""

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Literal, get_args, get_origin, get_type_hints

from cyclopts import default_name_transform

from rerank.config.files import check_files
from rerank.config.languages import check_language
from rerank.config.losses import losses
from rerank.config.settings import Config
from rerank.utils.errors import UserError
from rerank.utils.json_files import check_shape
from rerank.utils.parameters import validators
from rerank.utils.registry import Setting

Sections = dict[str, dict[str, Setting | None]]
"""Section -> key -> value."""


def sections(config: Config) -> Sections:
    """The settings by section and key, as in config.toml.

    The section of the loss has all its hyperparameters, in the order of its signature; the others have their defaults.

    >>> sections(Config(loss="hinge"))["loss"]
    {'name': 'hinge', 'margin': 1.0, 'pairs': 'all'}
    """
    by_section = asdict(config)
    given = by_section["loss"].pop("hyperparameters")
    by_section["loss"] |= losses().get(config.loss.name, {}) | given
    return by_section


def replace_setting(config: Config, key: str, value: object) -> Config:
    """The configuration with another value of a setting, such as training.lr or loss.alpha.

    >>> replace_setting(Config(), "training.lr", 1e-5).training.lr
    1e-05
    """
    name, _, key = key.partition(".")
    section = getattr(config, name)
    if name == "loss" and key != "name":
        key, value = "hyperparameters", section.hyperparameters | {key: value}
    return replace(config, **{name: replace(section, **{key: value})})


def setting_types() -> dict[str, dict[str, object]]:
    """Section -> key -> annotated type of a setting, without the hyperparameters of losses."""
    types = {name: get_type_hints(kind, include_extras=True) for name, kind in get_type_hints(Config).items()}
    del types["loss"]["hyperparameters"]
    return types


def flag_name(section_name: str, key: str) -> str:
    """The flag of a setting.

    >>> flag_name("first_stage", "k1")
    '--first-stage.k1'
    """
    return f"--{default_name_transform(section_name)}.{default_name_transform(key)}"


def validate(config: Config) -> None:
    """Raises UserError for invalid settings and missing files, and TypeError for what is no Config.

    >>> validate(replace_setting(Config(), "training.lr", -1.0))
    Traceback (most recent call last):
    rerank.utils.errors.UserError: --training.lr: got -1.0, expected 0 or more
    """
    if not isinstance(config, Config):
        raise TypeError(f"config: expected a rerank.Config, got {type(config).__name__}")
    types = setting_types()
    for name, settings in sections(config).items():
        for key, value in settings.items():
            kind = types[name].get(key, Setting)  # a hyperparameter of a loss
            validate_setting(flag_name(name, key), value, kind)
            _check_type(flag_name(name, key), value, kind)
    check_language(config.collection.language)
    check_files(config)


def _check_type(flag: str, value: object, kind: object) -> None:
    """Raises UserError for a value of another type; numpy's floats and texts are kinds of Python's."""
    plain = next((known(value) for known in (float, str) if isinstance(value, known)), value)
    try:
        check_shape(plain, kind)
    except ValueError as error:
        raise UserError(f"{flag} {value!r:.80}: {error}") from error


def check_types(tables: Mapping[str, object]) -> Sections:
    """Returns the sections; raises ValueError for one that is no table, and for a value of a wrong type.

    A value may be None, and unknown keys are ignored, because other versions have other settings.
    """
    by_section = check_shape(tables, dict[str, dict[str, object]])
    for section, types in setting_types().items():
        for key, value in by_section.get(section, {}).items():
            kind = types.get(key, Setting if section == "loss" else object)
            if value is not None:
                check_shape(value, kind, f" under [{section}] {key}")
    return check_shape(tables, Sections)


def validate_setting(flag: str, value: object, annotation: object) -> None:
    """Raises UserError, whose message begins with `flag`, for a value that its annotated type does not allow."""
    try:
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("expected a finite number")
        if get_origin(annotation) is Literal and value not in get_args(annotation):
            raise ValueError(f"expected {' or '.join(get_args(annotation))}")
        for validator in validators(annotation):
            validator(annotation, value)
    except ValueError as error:
        raise UserError(f"{flag}: got {value}, {error}") from error
