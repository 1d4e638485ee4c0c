"""What the settings of an experiment may be, and how they are kept beside its results."""

import json
import tomllib
from pathlib import Path
from typing import Any

from rerank.config import Config, sections
from rerank.errors import UserError
from rerank.utils.files import atomic_write

WITHOUT_EFFECT = (
    "output.folder",
    "output.name",
    "first_stage.threads",
    "training.max_tokens_per_forward",
    "training.gradient_checkpointing",
)
"""Keys that may change within an experiment: its results do not depend on them."""


def read_toml(path: Path, flag: str = "") -> dict[str, Any]:
    """The tables of a TOML file; raises UserError, which begins with `flag`, where it is missing or no TOML."""
    if not path.is_file():
        raise UserError(f"{flag}{path}: no such file; expected a TOML file such as configs/robust04.toml")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{flag}{path}: not TOML: {error}") from error


def to_toml(config: Config) -> str:
    """The configuration as TOML that `--config` reads back; what is None is left out."""
    lines = []
    for section, values in sections(config).items():
        lines.append(f"[{section}]")
        lines += [
            f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items() if value is not None
        ]
        lines.append("")
    return "\n".join(lines)


def save_settings(config: Config, path: Path) -> None:
    """Writes the configuration beside an experiment's results, or refuses to mix two in one folder.

    Raises UserError when `path` holds another configuration, and a fold was trained with it. What an older file lacks
    had its default.
    """
    begun = [*path.parent.glob("fold*/state"), *path.parent.glob("fold*/test.run")]
    if path.exists() and begun:
        changed = differences(tomllib.loads(path.read_text(encoding="utf-8")), sections(config))
        if not changed:
            return
        old, new = ("; ".join(f"{key} = {values[of]}" for key, values in changed.items()) for of in (0, 1))
        raise UserError(
            f"{path}: this experiment was begun with other settings: there {old}; here {new}; "
            "give this one another --name, or remove the folder"
        )
    with atomic_write(path) as tmp:
        tmp.write_text(to_toml(config), encoding="utf-8")


def differences(there: dict[str, Any], here: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """table.key -> the values there and here, of the keys that differ and have an effect; what one lacks is default."""
    defaults = _flat(sections(Config()))
    old, new = (defaults | _flat(tables) for tables in (there, here))
    return {key: (old.get(key), new.get(key)) for key in sorted(old.keys() | new) if old.get(key) != new.get(key)}


def _flat(tables: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """table.key -> value, of what is set and has an effect."""
    flat = {f"{name}.{key}": value for name, table in tables.items() for key, value in table.items()}
    return {key: value for key, value in flat.items() if key not in WITHOUT_EFFECT and value is not None}
