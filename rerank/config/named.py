"""The files of settings, and the grids of sweeps, that are part of the package and go by name."""

from pathlib import Path

CONFIGS = Path(__file__).parent / "configs"
SWEEPS = CONFIGS / "sweeps"


def config_names(folder: Path = CONFIGS) -> str:
    """The names of the files in a folder of settings, such as robust04."""
    return ", ".join(sorted(file.stem for file in folder.glob("*.toml")))


def config_file(given: str | Path, folder: Path = CONFIGS, base: Path = Path()) -> Path:
    """The file that is given, relative to `base`; if there is none, the one of that name in the folder."""
    path, named = base / Path(given).expanduser(), folder / f"{given}.toml"
    return named if not path.exists() and named.is_file() else path
