"""What the settings of an experiment may be, and how they are kept beside its results."""

import json
import math
import re
import tomllib
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rerank.config import Config
from rerank.errors import UserError
from rerank.files import replacing

RESERVED = ("index", "tokens", "features")
WARMUP = "warmup-"
"""What else lies beside the experiments of a collection: their names, and how those of warm-ups begin."""

WITHOUT_EFFECT = (
    "output.folder",
    "output.name",
    "first_stage.threads",
    "training.tokens_per_forward",
    "training.gradient_checkpointing",
)
"""Keys that may change within an experiment: its results do not depend on them."""


def check(config: Config) -> None:
    """Raises UserError for a value that no setting may have."""
    for section, values in asdict(config).items():
        for key, value in values.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise UserError(f"--{section}.{key}: got {value}, expected a finite number".replace("_", "-"))
    name = config.output.name
    if name and (not re.fullmatch(r"[\w.=+-]+", name) or name.startswith((".", WARMUP)) or name in RESERVED):
        raise UserError(
            f"--name {name}: expected letters, digits and . = + - _ only, and none of {', '.join(RESERVED)}, {WARMUP}…"
        )
    for key, share in (("first-stage.b", config.first_stage.b), ("warmup.keep-sentence", config.warmup.keep_sentence)):
        if share > 1:
            raise UserError(f"--{key}: got {share}, expected 0 to 1")
    if not any(config.warmup.weights().values()):
        raise UserError("--warmup.titles, --warmup.sentences, --warmup.keywords: all are 0, expected one above 0")
    least = {
        "collection.folds": 3,
        "first_stage.depth": 1,
        "first_stage.threads": 0,
        "first_stage.k1": 0,
        "first_stage.b": 0,
        "encoder.max_doc_tokens": 1,
        "network.hidden": 1,
        "lists.relevant": 1,
        "lists.non_relevant": 1,
        "training.epochs": 1,
        "training.lists_per_epoch": 1,
        "training.lists_per_step": 1,
        "training.patience": 1,
        "training.tokens_per_forward": 1,
        "training.lr": 0,
        "training.head_lr": 0,
        "training.clip": 0,
        "training.seed": 0,
        "warmup.steps": 0,
        "warmup.lists_per_step": 1,
        "warmup.titles": 0,
        "warmup.sentences": 0,
        "warmup.keywords": 0,
        "warmup.keep_sentence": 0,
        "warmup.neighbours": 1,
        "warmup.depth": 1,
        "warmup.random": 0,
        "warmup.lr": 0,
        "warmup.head_lr": 0,
        "warmup.held_out": 1,
        "warmup.validate_every": 1,
        "warmup.patience": 1,
    }
    for key, smallest in least.items():
        table, name = key.split(".")
        value = getattr(getattr(config, table), name)
        if value not in ("all", "auto") and not value >= smallest:
            raise UserError(f"--{key.replace('_', '-')}: got {value}, expected {smallest} or more")


def to_toml(config: Config) -> str:
    """The configuration as TOML that `--config` reads back; what is None is left out."""
    lines = []
    for table in fields(config):
        lines.append(f"[{table.name}]")
        values = asdict(getattr(config, table.name))
        lines += [
            f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items() if value is not None
        ]
        lines.append("")
    return "\n".join(lines)


def keep(config: Config, path: Path) -> None:
    """Writes the configuration beside an experiment's results, or refuses to mix two in one folder.

    Raises UserError when `path` holds another configuration, and a fold was trained with it. What an older file lacks
    had its default.
    """
    begun = [*path.parent.glob("fold*/state"), *path.parent.glob("fold*/test.run")]
    if path.exists() and begun:
        there, here = (_flat(tomllib.loads(toml)) for toml in (path.read_text(encoding="utf-8"), to_toml(config)))
        there = _flat(asdict(Config())) | there
        changed = [key for key in sorted(here.keys() | there) if here.get(key) != there.get(key)]
        if not changed:
            return
        old, new = ("; ".join(f"{key} = {of.get(key)}" for key in changed) for of in (there, here))
        raise UserError(
            f"{path}: this experiment was begun with other settings: there {old}; here {new}; "
            "give this one another --name, or remove the folder"
        )
    with replacing(path) as aside:
        aside.write_text(to_toml(config), encoding="utf-8")


def _flat(tables: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """table.key -> value, of what is set and has an effect."""
    flat = {f"{name}.{key}": value for name, table in tables.items() for key, value in table.items()}
    return {key: value for key, value in flat.items() if key not in WITHOUT_EFFECT and value is not None}
