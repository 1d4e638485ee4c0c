"""The script that compares the network's settings with trees: which runs it makes, chooses and fuses."""

import json
import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rerank.data.trec import read_run
from rerank.runs.layout import CollectionFolder
from tests.support.paths import ROOT
from tests.support.small_features import SETTINGS, write_folds_of_features

SCRIPT = ROOT / "scripts" / "paper" / "compare_features.py"


class Booster:
    """Scores by the second feature, which tells nothing."""

    best_iteration = 1

    def predict(self, data, num_threads):
        return data[:, 1].astype(float)


@pytest.fixture
def lightgbm(monkeypatch):
    """A stand-in for LightGBM."""
    package = ModuleType("lightgbm")
    package.__version__, package.Dataset = "0", lambda *arguments, **named: None
    package.early_stopping = lambda rounds, verbose: rounds
    package.train = lambda *arguments, **named: Booster()
    monkeypatch.setitem(sys.modules, "lightgbm", package)


def test_the_tables_have_every_cell_the_chosen_ones_and_the_ensembles(lightgbm, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_folds_of_features(tmp_path / "letor", queries=15)
    (tmp_path / "letor.toml").write_text(SETTINGS)
    words = ["letor", "--config", "letor.toml", "--seeds", "4", "--cells", "none-0", "log1p-0.3", "--epochs", "1"]
    monkeypatch.setattr(sys, "argv", ["compare_features.py", *words])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    printed = capsys.readouterr()
    folder = CollectionFolder(Path("runs/letor"))
    chosen = dict(line.split() for line in printed.out.splitlines()[1:6])
    assert set(chosen) == {"1", "2", "3", "4", "5"}
    assert set(chosen.values()) <= {"none-0", "log1p-0.3"}
    settings = json.loads(Path("runs/letor/log1p-0.3-seed=1/fold2/manifest.json").read_text())["config"]
    assert (settings["network"]["transform"], settings["network"]["dropout"]) == ("log1p", 0.3)
    assert (settings["training"]["seed"], settings["training"]["epochs"]) == (1, 1)
    run = read_run(folder.path / "chosen-seed=3.run")
    for fold, cell in chosen.items():
        test = read_run(folder.experiment(f"{cell}-seed=3").fold(fold).test_run)
        assert {query_id: run[query_id] for query_id in test} == test
    assert len(run) == 15
    single, fused = printed.out.split("Mean ± standard error")[1:]
    assert [line.split()[0] for line in single.splitlines()[3:7]] == ["lambdarank", "none-0", "log1p-0.3", "chosen"]
    assert [line.split("  ")[0] for line in fused.splitlines()[3:6]] == ["lambdarank × 4", "none-0 × 4", "chosen × 4"]
    assert "better, worse than lambdarank (two-sided paired t-test" in single
    assert "better, worse than lambdarank × 4 (two-sided paired t-test" in fused
    facts = json.loads(Path("runs/letor/chosen-fused.run.json").read_text())["fusion"]
    assert (facts["method"], facts["weights"], len(facts["runs"])) == ("interpolate", [1.0] * 4, 4)
