"""What is in the wheel."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.support.paths import ROOT


def files(folder: Path) -> set[str]:
    """The files below a folder, links followed, less what Python has compiled."""
    return {
        str(Path(path, name).relative_to(folder.parent))
        for path, _, names in os.walk(folder, followlinks=True)
        for name in names
        if Path(path).name != "__pycache__"
    }


def test_the_wheel_has_the_package_its_data_and_the_configs_and_nothing_else(tmp_path):
    for name in ("rerank", "configs"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("scripts", "tests"):  # which the wheel must not take in
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    flags = ["--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", "dist"]
    command = [sys.executable, "-m", "pip", "wheel", *flags, "."]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = (tmp_path / "dist").glob("ir_rerank-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == files(tmp_path / "rerank")
    assert {
        "rerank/py.typed",
        "rerank/config/configs/robust04.toml",
        "rerank/config/configs/sweeps/letor.toml",
    } <= packed
