"""Checks that the files named by settings exist, and finds the package's own files of settings."""

import os
from pathlib import Path

from rerank.config.settings import Config
from rerank.utils.errors import UserError

CONFIGS = Path(__file__).parent / "configs"
SWEEPS = CONFIGS / "sweeps"


def check_files(config: Config) -> None:
    """Raises UserError for a setting that names a missing file or folder, or an output folder that is a file."""
    if config.first_stage.run:
        check_file("--first-stage.run", config.first_stage.run)
    if config.collection.queries:
        check_file("--collection.queries", config.collection.queries)
    if (lists := config.training.lists) and not Path(lists).exists():
        raise UserError(f"--training.lists {lists}: no such file, nor folder of a data set")
    check_local_path("--collection", config.collection.source)
    check_local_path("--first-stage.index", config.first_stage.index)
    check_local_path("--encoder", config.encoder.name)
    folder = config.output.folder
    if os.path.lexists(folder) and not Path(folder).is_dir():
        raise UserError(f"--output.folder {folder}: is not a folder; expected a folder, or a new one, to write in")


def check_file(what: str, path: str | Path) -> None:
    """Raises UserError, whose message begins with `what`, unless `path` is an existing file."""
    if Path(path).is_dir():
        raise UserError(f"{what} {path}: is a folder, expected a file")
    if not Path(path).is_file():
        raise UserError(f"{what} {path}: no such file")


def check_local_path(flag: str, value: str) -> None:
    """Raises UserError if `value` looks like a path, not like a hub name or dataset id, and nothing is there."""
    if value.startswith(("/", ".", "~")) and not Path(value).exists():
        raise UserError(f"{flag} {value}: no such file or folder")


def config_names(folder: Path = CONFIGS) -> str:
    """The names of the files in a folder of settings, such as robust04."""
    return ", ".join(sorted(file.stem for file in folder.glob("*.toml")))


def config_file(given: str | Path, folder: Path = CONFIGS, base: Path = Path()) -> Path:
    """The given file, relative to `base`; if it does not exist, the file of that name in `folder`."""
    path, named = base / Path(given).expanduser(), folder / f"{given}.toml"
    return named if not path.is_file() and named.is_file() else path
