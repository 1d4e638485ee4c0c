"""The settings of an experiment as files have them: written, read, compared, and old names replaced by today's."""

import json
import tomllib
from pathlib import Path
from typing import Any

from rerank.config import Config, check_types, sections
from rerank.evaluation.measures import measure_name
from rerank.runs.layout import ExperimentFolder
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write

WITHOUT_EFFECT = (
    "output.folder",
    "output.name",
    "first_stage.threads",
    "training.device",
    "training.max_tokens_per_forward",
    "training.gradient_checkpointing",
    "training.track",
)
"""Keys that may change within an experiment: its results do not depend on them."""

OLD_SECTIONS = {"warmup": "pretraining"}
OLD_KEYS = {
    "pretraining.neighbours": "pretraining.hard_negatives",
    "pretraining.random": "pretraining.random_negatives",
    "training.tokens_per_forward": "training.max_tokens_per_forward",
}
"""The names of version 0.1.0, which are still read, and today's."""

Sections = dict[str, dict[str, Any]]
"""Section -> key -> value."""


def read_toml(path: Path, flag: str = "") -> dict[str, Any]:
    """Reads a TOML file; old names of sections and keys become today's.

    Raises UserError, whose message begins with `flag`, if the file is missing, is not TOML, or has the same section by
    its old and its new name.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{flag}{path}: no such file; expected a TOML file such as configs/robust04.toml") from error
    except OSError as error:
        raise UserError(f"{flag}{path}: cannot be read: {error.strerror}; expected a TOML file") from error
    except ValueError as error:  # a TOMLDecodeError and a UnicodeDecodeError are ones too
        raise UserError(f"{flag}{path}: not TOML: {error}") from error
    except RecursionError as error:
        raise UserError(f"{flag}{path}: not TOML that can be read: too many brackets in each other") from error
    for old, new in OLD_SECTIONS.items():
        if old in tables and new in tables:
            raise UserError(f"{flag}{path}: [{old}] is the old name of [{new}]: expected one of them, got both")
    return upgrade(tables)


def read_settings(path: Path) -> Sections:
    """The settings of an experiment's config.toml; raises UserError if one does not have its type (see `read_toml`)."""
    tables = read_toml(path)
    try:
        check_types(tables)
    except ValueError as error:
        raise UserError(f"{path}: {error}; restore the file that `rerank train` wrote") from error
    return tables


def upgrade(tables: dict[str, Any]) -> dict[str, Any]:
    """The sections with today's names of sections, keys and measures; values outside a section stay as they are.

    The hyperparameters of a loss are keys of the section [loss].

    >>> upgrade({"warmup": {"steps": 4}, "training": {"tokens_per_forward": 64}})
    {'pretraining': {'steps': 4}, 'training': {'max_tokens_per_forward': 64}}
    """
    upgraded: dict[str, Any] = {}
    for section, values in tables.items():
        if not isinstance(values, dict):
            upgraded[section] = values
            continue
        given = values.get("hyperparameters")
        for key, value in (_without(values, "hyperparameters") | given if isinstance(given, dict) else values).items():
            new_section, _, new_key = current_key(f"{section}.{key}").partition(".")
            upgraded.setdefault(new_section, {})[new_key] = current_value(f"{new_section}.{new_key}", value)
        upgraded.setdefault(OLD_SECTIONS.get(section, section), {})
    return upgraded


def current_key(key: str) -> str:
    """Today's name of a setting.

    >>> current_key("warmup.steps"), current_key("loss.alpha")
    ('pretraining.steps', 'loss.alpha')
    """
    section, dot, name = key.partition(".")
    key = f"{OLD_SECTIONS.get(section, section)}{dot}{name}"
    return OLD_KEYS.get(key.replace("-", "_"), key)


def current_value(key: str, value: Any) -> Any:
    """The value of a setting as files have it: several runs as a list, a measure by its ir_measures name.

    All else, unknown measures too, is as it is.
    """
    if isinstance(value, tuple):
        return list(value)
    if key != "training.measure" or not isinstance(value, str) or value == "loss":
        return value
    try:
        return measure_name(value)
    except UserError:  # left to the command that uses the measure
        return value


def settings_of(config: Config) -> Sections:
    """The configuration as files have it."""
    return upgrade(sections(config))


def to_toml(config: Config) -> str:
    """The configuration as TOML that `--config` reads back; settings that are None are left out."""
    lines = []
    for section, values in settings_of(config).items():
        lines.append(f"[{section}]")
        lines += [
            f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items() if value is not None
        ]
        lines.append("")
    return "\n".join(lines)


def save_settings(config: Config, path: Path, in_use: bool = False) -> None:
    """Writes the configuration to an experiment's config.toml; two configurations in one folder are refused.

    Raises UserError if `path` holds another configuration, and another command is at work with it (`in_use`, see
    `rerank.runs.claims`), or a fold was trained with it. A key that is missing there, because an older version wrote
    the file, had its default.
    """
    if path.exists() and (in_use or ExperimentFolder(path.parent).begun):
        changed = differences(read_settings(path), settings_of(config))
        if not changed:
            return
        old, new = ("; ".join(f"{key} = {values[i]}" for key, values in changed.items()) for i in (0, 1))
        raise UserError(
            f"{path}: this experiment was begun with other settings: there {old}; here {new}; "
            "give this one another --name, or remove the folder"
        )
    with atomic_write(path) as tmp:
        tmp.write_text(to_toml(config), encoding="utf-8")


def differences(before: Sections, now: Sections) -> dict[str, tuple[Any, Any]]:
    """section.key -> both values, of the settings that differ and have an effect; a missing one has its default."""
    defaults = _flat(settings_of(Config()))
    old, new = (defaults | _flat(settings) for settings in (before, now))
    return {key: (old.get(key), new.get(key)) for key in sorted(old.keys() | new) if old.get(key) != new.get(key)}


def _without(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}


def _flat(settings: Sections) -> dict[str, Any]:
    """section.key -> value, of the settings that are set and have an effect."""
    flat = {f"{section}.{key}": value for section, values in settings.items() for key, value in values.items()}
    return {key: value for key, value in flat.items() if key not in WITHOUT_EFFECT and value is not None}
