import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from rerank.cli import main
from rerank.sweep import command
from rerank.trec import read_run
from tests.small_collection import failed
from tests.sweep.small_grid import CELLS, GRID


@pytest.fixture
def grid(here):
    Path("grid.toml").write_text(GRID)
    return here / "runs" / "towns"


def sweep(*words):
    """Returns the exit code."""
    with pytest.raises(SystemExit) as ended:
        main(["sweep", "grid.toml", *words])
    return ended.value.code


def test_cells_are_experiments_that_are_trained_once_and_ranked(grid, capsys):
    assert sweep("--fold", "2", "--epochs", "1") == 0
    printed = capsys.readouterr()
    assert "3 folds of cells, 0 of them finished already" in printed.err
    assert "epoch 1" not in printed.err
    lines = printed.out.splitlines()
    assert lines[0] == "runs/towns: the best of 3 finished cells, fold 2"
    assert sorted(line.split()[0] for line in lines[3:]) == CELLS
    values = [float(line.split()[1]) for line in lines[3:]]
    assert values == sorted(values, reverse=True)
    logged = [json.loads((grid / name / "fold2" / "log.jsonl").read_text())["valid"] for name in CELLS]
    assert values == pytest.approx(sorted(logged, reverse=True), abs=1e-4)
    runs = [grid / name / "fold2" / "test.run" for name in CELLS]
    before = [run.stat().st_mtime_ns for run in runs]
    (grid / CELLS[1] / "fold2" / "manifest.json").unlink()
    assert sweep("--fold", "2", "--epochs", "1") == 0
    assert "3 folds of cells, 2 of them finished already" in capsys.readouterr().err
    assert [run.stat().st_mtime_ns for run in runs] == before
    assert tomllib.loads((grid / CELLS[1] / "config.toml").read_text())["loss"]["metric"] == "ndcg@10"
    main(["eval", *map(str, runs), "--fold", "2"])
    assert all(name in capsys.readouterr().out for name in [])


def test_a_cell_is_what_train_makes_of_the_same_settings(grid):
    assert sweep("--fold", "1", "--epochs", "1", "--workers", "1") == 0
    words = ["--loss", "hinge", "--training.lr", "1e-3", "--epochs", "1", "--name", "alone"]
    main(["train", "--config", "towns.toml", "--fold", "1", *words])
    one, other = (read_run(grid / name / "fold1" / "test.run") for name in ("alone", CELLS[0]))
    assert one.keys() == other.keys()
    assert all(other[query_id] == pytest.approx(found, abs=1e-5) for query_id, found in one.items())
