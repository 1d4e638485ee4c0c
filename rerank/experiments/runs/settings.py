"""Reads, writes and compares the settings of experiments."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from rerank.config import Config, sections
from rerank.config.functions import Sections, check_types
from rerank.experiments.runs.layout import ExperimentFolder
from rerank.utils.errors import UserError
from rerank.utils.files import write_text
from rerank.utils.inside import inside
from rerank.utils.registry import Setting

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


def read_toml(path: Path, flag: str = "") -> dict[str, object]:
    """Reads a TOML file; raises UserError, prefixed with `flag`, if it is missing or not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{flag}{path}: no such file; expected a TOML file, or a name such as robust04") from error
    except OSError as error:
        raise UserError(f"{flag}{path}: cannot be read: {error.strerror}; expected a TOML file") from error
    except (ValueError, RecursionError) as error:  # a TOMLDecodeError and a UnicodeDecodeError are ValueErrors
        raise UserError(f"{flag}{path}: not TOML: {error}") from error


def read_settings(path: Path) -> Sections:
    """The settings in an experiment's config.toml.

    Raises UserError as `read_toml`, as `inside` for a link or a FIFO, and for a value of a wrong type.
    """
    tables = read_toml(inside(path.parent, path.name))
    try:
        return check_types(tables)
    except ValueError as error:
        raise UserError(f"{path}: {error}; restore the file that `rerank train` wrote") from error


def to_toml(config: Config) -> str:
    """The configuration as TOML that `--config` reads back; settings that are None are left out."""
    return "\n".join(line for name, values in sections(config).items() for line in toml_lines([name], values))


def toml_lines(path: list[str], table: Mapping[str, object]) -> list[str]:
    """A table and its sub-tables as lines of TOML, without values that are None; `path` has the keys of its name."""
    plain = {key: value for key, value in table.items() if not isinstance(value, dict | None)}
    header = ".".join(key if re.fullmatch(r"[\w-]+", key, re.ASCII) else json.dumps(key) for key in path)
    lines = [f"[{header}]", *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in plain.items()), ""]
    tables = {key: value for key, value in table.items() if isinstance(value, dict)}
    return [*lines, *(line for key, value in tables.items() for line in toml_lines([*path, key], value))]


def save_settings(config: Config, path: Path) -> None:
    """Writes the configuration to an experiment's config.toml.

    Raises UserError if `path` holds another configuration and the training of a fold has begun. Missing keys have their
    defaults. The caller must hold a lock, so that one command saves at a time.
    """
    if path.exists() and any(model.begun for model in ExperimentFolder(path.parent).models):
        changed = differences(read_settings(path), sections(config))
        if not changed:
            return
        old, new = ("; ".join(f"{key} = {values[i]}" for key, values in changed.items()) for i in (0, 1))
        remedy = "take another --name, or another --output.folder for a sweep, or remove the folder"
        raise UserError(f"{path}: this experiment was begun with other settings: there {old}; here {new}; {remedy}")
    write_text(path, to_toml(config))


def differences(before: Sections, now: Sections) -> dict[str, tuple[Setting | None, Setting | None]]:
    """section.key -> (before, now) for the settings that differ and have an effect; missing keys have their defaults.

    If the losses differ, their hyperparameters are not compared.
    """
    defaults = _flat(sections(Config()))
    old, new = (defaults | _flat(settings) for settings in (before, now))
    keys = sorted(old.keys() | new)
    if old["loss.name"] != new["loss.name"]:
        keys = [key for key in keys if key == "loss.name" or not key.startswith("loss.")]
    return {key: (old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)}


def _flat(settings: Sections) -> dict[str, Setting | None]:
    """section.key -> value for the settings that are set and have an effect."""
    flat = {f"{section}.{key}": value for section, values in settings.items() for key, value in values.items()}
    return {key: value for key, value in flat.items() if key not in WITHOUT_EFFECT and value is not None}
