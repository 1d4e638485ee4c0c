"""The script that trains LightGBM's lambdarank: with a stand-in for LightGBM, and with itself where it is installed."""

import json
import runpy
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from rerank.cli.main import main
from rerank.data.trec import read_qrels, read_run
from rerank.evaluation.evaluate import evaluate
from tests.support.paths import ROOT
from tests.support.small_features import write_folds_of_features

SCRIPT = ROOT / "scripts" / "paper" / "lambdarank.py"


class Dataset:
    """What LightGBM is given."""

    def __init__(self, data, label, reference=None, *, group, params, free_raw_data):
        assert data.dtype == np.float32
        assert sum(group) == len(data) == len(label)
        self.data, self.label, self.group, self.reference = data, label, group, reference


class Booster:
    """Scores by the first feature, which tells the label, but backwards with a learning rate of 0.02."""

    best_iteration = 7

    def __init__(self, cell):
        self.sign = -1 if cell["learning_rate"] == 0.02 else 1

    def predict(self, data, num_threads):
        return self.sign * data[:, 0].astype(np.float64)


@pytest.fixture
def stand_in(monkeypatch):
    """A package `lightgbm` that keeps what it trains with."""
    package = ModuleType("lightgbm")
    package.__version__ = "0"
    package.Dataset, package.early_stopping, package.calls = Dataset, lambda rounds, verbose: rounds, []

    def train(parameters, train_set, num_boost_round, valid_sets, callbacks):
        assert valid_sets[0].reference is train_set
        package.calls.append((parameters, train_set, valid_sets[0]))
        return Booster(parameters)

    package.train = train
    monkeypatch.setitem(sys.modules, "lightgbm", package)
    return package


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    def run(*words):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["lambdarank.py", *words])
        runpy.run_path(str(SCRIPT), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_validation_queries_choose_the_cell_of_each_fold(call, stand_in, tmp_path, capsys):
    write_folds_of_features(tmp_path / "letor")
    lines = call("letor").splitlines()
    grid = runpy.run_path(str(SCRIPT))["cells"]()
    assert [parameters | cell for (parameters, _, _), cell in zip(stand_in.calls, grid * 5, strict=True)] == [
        parameters for parameters, _, _ in stand_in.calls
    ]
    folds = json.loads(Path("runs/letor/folds.json").read_text())
    for fold, (_, train, valid) in zip(folds, stand_in.calls[:: len(grid)], strict=True):
        assert (len(train.group), len(valid.group)) == (len(fold["train"]), len(fold["valid"]))
    assert lines[0].split() == ["fold", *grid[0], "trees", "validation", "nDCG@10"]
    assert [line.split()[:5] for line in lines[1:6]] == [[str(k), "0.05", "7", "20", "7"] for k in range(1, 6)]
    assert lines[-1] == "runs/letor/lambdarank/all.run"
    first = Path("runs/letor/lambdarank/fold1")
    assert set(read_run(first / "valid.run")) == set(folds[0]["valid"])
    assert set(read_run(first / "test.run")) == set(folds[0]["test"])
    main(["eval", lines[-1], "--measures", "nDCG@10"])
    assert "over 5 folds, 30 queries" in capsys.readouterr().out


def test_the_chosen_cell_is_trained_with_seeds_on_samples(call, stand_in, tmp_path):
    write_folds_of_features(tmp_path / "letor")
    call("letor", "--seeds", "2")
    cells = len(runpy.run_path(str(SCRIPT))["cells"]())
    of_fold = [parameters for parameters, _, _ in stand_in.calls[: cells + 2]]
    assert not any("bagging_fraction" in parameters for parameters in of_fold[:cells])
    for seed, parameters in enumerate(of_fold[cells:]):
        assert (parameters["seed"], parameters["learning_rate"], parameters["num_leaves"]) == (seed, 0.05, 7)
        assert parameters["bagging_fraction"] == parameters["feature_fraction"] == 0.8
    plain = read_run("runs/letor/lambdarank/all.run")
    for seed in range(2):
        assert read_run(f"runs/letor/lambdarank-seed={seed}/all.run").keys() == plain.keys()


def test_the_scores_are_those_of_their_documents(call, stand_in, tmp_path):
    write_folds_of_features(tmp_path / "letor")
    call("letor", "--output", "elsewhere")
    run = read_run("elsewhere/letor/lambdarank/all.run")
    first = {}
    for line in (tmp_path / "letor" / "Fold1" / "test.txt").read_text().splitlines():
        words = line.split()
        first.setdefault(words[1][4:], {})[words[-1]] = float(words[2][2:])
    for query_id, scores in first.items():
        assert run[query_id] == pytest.approx(scores, abs=1e-6)


def test_without_lightgbm_it_says_what_to_install(call, monkeypatch, tmp_path):
    write_folds_of_features(tmp_path / "letor")
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(SystemExit, match=r"^lambdarank.py: LightGBM cannot be imported \(.*\): pip install lightgbm$"):
        call("letor")
    assert not (tmp_path / "runs").exists()


def test_a_mistake_is_one_line(call, stand_in, tmp_path):
    with pytest.raises(SystemExit, match=r"^lambdarank.py: nowhere: no feature files; expected a file, or a folder"):
        call("nowhere")


def test_lightgbm_itself_learns(tmp_path, monkeypatch):
    pytest.importorskip("lightgbm")
    write_folds_of_features(tmp_path / "letor", queries=60)
    script = runpy.run_path(str(SCRIPT))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(script["GRID"], "learning_rate", (0.1,))
    monkeypatch.setitem(script["GRID"], "num_leaves", (7,))
    monkeypatch.setitem(script["GRID"], "min_data_in_leaf", (5, 20))
    script["make_runs"]("letor", "runs")
    values = evaluate(read_qrels("runs/letor/qrels.txt"), read_run("runs/letor/lambdarank/all.run"), ["nDCG@10"])
    assert np.mean(list(values["nDCG@10"].values())) > 0.7
