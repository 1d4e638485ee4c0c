"""What a command may write to: new and regular files."""

import os
from pathlib import Path

import pytest

from tests.support.small_collection import failed, in_a_copy
from tests.support.small_results import write_results

COMMANDS = {
    "score": ["score", "runs/towns/smoothi/fold1/checkpoint", "runs/towns/bm25.run", "--collection", "towns"],
    "plot": ["plot", "gain", "results/runs/towns"],
    "report": ["report", "results/runs/towns"],
}
"""Every command that writes what the user names."""

SUFFIX = {"score": ".run", "plot": ".pdf", "report": ".html"}


@pytest.fixture(scope="module")
def trained(trained, tmp_path_factory):
    """A trained fold and the results of an experiment."""
    with in_a_copy(trained, tmp_path_factory) as folder:
        write_results(folder / "results", {"hinge": 1.0}, epochs=1)
    return folder


@pytest.fixture
def here(there):
    return there


def make_link_to_a_file(path):
    Path("target").touch()
    path.symlink_to("target")


def identity(path):
    about = path.lstat()
    return about.st_ino, about.st_mode, about.st_mtime_ns


REFUSED = {
    "a FIFO": os.mkfifo,
    "is a link, which is not followed": make_link_to_a_file,
    "is a link": lambda path: path.symlink_to(path.name),
    "folder|already exists": lambda path: (path / "file").mkdir(parents=True),
}
"""What makes something that is no file, by words of the line that refuses it."""


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("name", COMMANDS)
def test_anything_but_a_file_is_refused_by_name_before_any_work(here, capsys, monkeypatch, name, kind):
    out = Path(f"out{SUFFIX[name]}")
    REFUSED[kind](out)
    before = identity(out)
    monkeypatch.setattr("rerank.experiments.score.open_accelerator", None)
    for module in ("page", "plot"):
        monkeypatch.setattr(f"rerank.experiments.report.{module}.open_results", None)
    line = failed(capsys, *COMMANDS[name], "--out", str(out))
    assert line.startswith(f"rerank: --out {out}: ")
    assert any(words in line for words in kind.split("|"))
    assert identity(out) == before


TRAIN = ("train", "--config", "towns.toml", "--fold", "2")
BELOW_RUNS = {
    "index": ("search", COMMANDS["score"][1], "good"),
    "tokens": TRAIN,
    "smoothi": TRAIN,
    "smoothi/fold2": TRAIN,
    "embeddings": ("fit", "towns", "--encoder", "encoder"),
    "pipeline.unfinished": ("fit", "towns", "--encoder", "none"),
}
"""A folder in that of the runs of a collection, and a command that would write into it."""


@pytest.mark.parametrize("name", BELOW_RUNS)
def test_nothing_is_written_through_a_link_in_a_folder_of_runs(here, capsys, name):
    path, outside = Path("runs/towns", name), Path("outside")
    if path.exists():
        path.rename(outside)
    outside.mkdir(exist_ok=True)
    path.symlink_to(outside.absolute())
    before = {file: file.lstat().st_mtime_ns for file in outside.rglob("*")}
    assert f"{path}: is a link that leads out of {path.parent}" in failed(capsys, *BELOW_RUNS[name])
    assert {file: file.lstat().st_mtime_ns for file in outside.rglob("*")} == before


@pytest.mark.parametrize("name", COMMANDS)
def test_a_place_where_nothing_can_be_written_is_refused(here, capsys, name):
    out = f"towns.toml/out{SUFFIX[name]}"
    line = failed(capsys, *COMMANDS[name], "--out", out)
    assert f"--out {out}: cannot be written: " in line
    assert line.endswith("towns.toml: Not a directory")
    long = "x" * 300 + SUFFIX[name]
    assert "File name too long" in failed(capsys, *COMMANDS[name], "--out", long)
    if Path("/proc/self").exists():
        assert "cannot be written" in failed(capsys, *COMMANDS[name], "--out", f"/proc/out{SUFFIX[name]}")


@pytest.mark.parametrize("out", [".run", ".run.gz", "folder/.run"])
def test_a_run_without_a_name_is_refused_before_scoring(here, capsys, monkeypatch, out):
    monkeypatch.setattr("rerank.experiments.score.open_accelerator", None)
    assert f"--out {out}: expected a name before .run" in failed(capsys, *COMMANDS["score"], "--out", out)
    assert not Path("folder").exists()
