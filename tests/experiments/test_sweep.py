import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from rerank.cli.main import main
from rerank.data.runs import read_run
from rerank.experiments import sweep as command
from rerank.training import loop as training
from rerank.training.device import visible_gpus
from rerank.utils.errors import UserError
from tests.support.patience import SECONDS, until
from tests.support.small_collection import exit_code, failed
from tests.support.small_grid import CELLS, GRID, work_here


@pytest.fixture
def grid(here):
    Path("grid.toml").write_text(GRID)
    return here / "runs" / "towns"


@pytest.fixture
def inline(monkeypatch):
    """Trains in this process, which is quicker than to start one."""
    monkeypatch.setattr(command, "work", work_here)


def sweep(*words):
    return exit_code("sweep", "grid.toml", *words)


def test_workers_train_each_cell_as_train_does(grid, capsys):
    assert sweep("--fold", "1", "--epochs", "1", "--workers", "2") == 0
    printed = capsys.readouterr()
    assert "3 folds, 0 of them finished already" in printed.err
    assert "epoch 1" not in printed.err
    main(["train", "--config", "towns.toml", "--fold", "1", "--loss", "hinge", "--epochs", "1", "--name", "alone"])
    one, other = (read_run(grid / name / "fold1" / "test.run") for name in ("alone", CELLS[0]))
    assert one.keys() == other.keys()
    assert all(other[query_id] == pytest.approx(found, abs=1e-5) for query_id, found in one.items())


def test_cells_are_experiments_that_are_trained_once_and_ranked(grid, inline, capsys, monkeypatch):
    assert sweep("--fold", "2", "--epochs", "1") == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[0] == "runs/towns: the best of 3 finished cells, fold 2"
    assert sorted(line.split()[0] for line in lines[3:]) == CELLS
    values = [float(line.split()[1]) for line in lines[3:]]
    assert lines[2].split() == ["cell", "nDCG@20", "of", "validation", "first", "stage"]
    assert len({line.split()[2] for line in lines[3:]}) == 1  # the same queries and candidates
    logged = [json.loads((grid / name / "fold2" / "log.jsonl").read_text())["valid"] for name in CELLS]
    assert values == pytest.approx(sorted(logged, reverse=True), abs=1e-4)
    runs = [grid / name / "fold2" / "test.run" for name in CELLS]
    before = [run.stat().st_mtime_ns for run in runs]
    monkeypatch.setattr(command, "measure", None)  # nothing is measured if nothing is left
    assert sweep("--fold", "2", "--epochs", "1") == 0
    assert "3 folds, 3 of them finished already" in capsys.readouterr().err
    assert [run.stat().st_mtime_ns for run in runs] == before
    main(["eval", *map(str, runs), "--fold", "2"])
    table = capsys.readouterr().out
    assert all(name in table for name in CELLS)


def test_feature_vectors_are_swept_by_the_same_command(letor, inline, capsys):
    table = 'config = "letor.toml"\n[[grid]]\nloss.name = ["smoothi", "listnet"]\ntraining.lr = 1e-2\n'
    Path("grid.toml").write_text(table)
    assert sweep("--training.measure", "loss", "--epochs", "2") == 0
    out = capsys.readouterr().out
    assert "the best of 2 finished cells" in out
    assert "nDCG of validation" in out  # the loss itself says nothing across losses
    assert len(list(letor.glob("runs/letor/*/all.run"))) == 2


def test_all_folds_of_a_cell_end_in_one_run_which_is_written_if_it_lacks(grid, inline, capsys, monkeypatch):
    Path("grid.toml").write_text('config = "towns.toml"\n[[grid]]\nloss.name = "hinge"\n')
    assert sweep("--epochs", "1") == 0
    whole = read_run(grid / "hinge" / "all.run")
    assert whole.keys() == read_run(grid / "bm25.run").keys()
    table = r"over 5 folds\n\ncell +nDCG@20 of validation  first stage\nhinge +0\.\d{4} ± 0\.\d{4} +0\.\d{4}\n"
    assert re.search(table, capsys.readouterr().out)
    (grid / "hinge" / "all.run").unlink()
    monkeypatch.setattr(command, "measure", None)  # no fold is left, so nothing is measured or trained
    monkeypatch.setattr(command, "train_folds", None)
    assert sweep("--epochs", "1") == 0
    assert read_run(grid / "hinge" / "all.run") == whole


def test_a_cell_that_fails_is_reported_at_the_end_and_goes_on_the_next_time(grid, inline, capsys, monkeypatch):
    def refuse(*arguments):
        raise UserError("the loss is not finite on query q1")

    with monkeypatch.context() as patch:
        patch.setattr(training, "accumulate_gradient", refuse)
        assert sweep("--fold", "1", "--epochs", "1", "--loss.margin=1") == 2  # a flag that no SmoothI takes
        assert f"cell {CELLS[1]}: --loss smoothi: has no hyperparameter margin" in capsys.readouterr().err
        assert sweep("--fold", "1", "--epochs", "1") == 1
    printed = capsys.readouterr()
    assert all(f"failed: {name}, fold 1: the loss is not finite on query q1" in printed.err for name in CELLS)
    assert "the best of 0 finished cells" in printed.out
    assert sweep("--fold", "1", "--epochs", "1") == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--fold", "9"], "fold 9: no such fold"),
        (["--config", "nowhere.toml"], "--config nowhere.toml: no such file"),
        (["--fold", "final"], "--fold final: a sweep compares models on folds"),
        (["--workers", "0"], "--workers: got 0, expected 1 or more"),
        (["--loss.delta", "0.7"], f"cell {CELLS[1]}: --loss smoothi: "),
        (["--workres", "2"], "Unknown option: --workres"),
    ],
)
def test_a_mistake_ends_before_anything_is_trained(grid, capsys, words, expected):
    assert expected in failed(capsys, "sweep", "grid.toml", *words)
    assert not list(grid.rglob("test.run"))


def test_other_settings_are_refused_before_anything_is_trained(grid, inline, capsys):
    assert sweep("--fold", "1", "--epochs", "1") == 0
    capsys.readouterr()
    changed = ["sweep", "grid.toml", "--fold", "2", "--epochs", "2"]
    line = failed(capsys, *changed)
    assert "there training.epochs = 1; here training.epochs = 2" in line
    assert "another --output.folder for a sweep" in line  # it refuses --name
    assert not list(grid.glob("*/fold2"))


def test_an_interrupt_stops_the_workers_and_the_same_command_goes_on(grid):
    words = [sys.executable, "-m", "rerank", "sweep", "grid.toml", "--fold", "1", "--workers", "2"]
    long = ["--epochs", "100000", "--training.patience", "100000"]  # no worker ends before the other begins
    process = subprocess.Popen([*words, *long], stderr=subprocess.PIPE, text=True)
    until(lambda: len(list(grid.glob("*/fold1/state/epochs.json"))) == 2 or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=SECONDS)
    assert process.returncode == 130, told
    assert told.splitlines()[-1].startswith("rerank: interrupted; nothing is left half-written")
    assert "Traceback" not in told
    logs = [path.read_text() for path in sorted(grid.glob("*/fold1/log.jsonl"))]
    time.sleep(0.5)
    assert [path.read_text() for path in sorted(grid.glob("*/fold1/log.jsonl"))] == logs  # nobody goes on
    assert not list(grid.rglob("*.part"))
    states = list(grid.glob("*/fold1/state"))
    assert len(states) == 2
    assert not list(grid.glob("*/fold1/test.run"))


@pytest.mark.parametrize(("workers", "threads"), [(1, 4), (3, 2)])
def test_the_workers_share_the_cores(grid, inline, monkeypatch, workers, threads):
    used = []
    monkeypatch.setattr(command, "count_cores", lambda: 6)
    monkeypatch.setattr(command, "train_folds", lambda *_: used.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        sweep("--fold", "1", "--epochs", "1", "--workers", str(workers))
    finally:
        torch.set_num_threads(before)
    assert used == [threads] * 3


def test_by_default_there_is_a_worker_for_each_gpu_that_the_cells_do_not_choose_themselves(grid, monkeypatch):
    asked = []

    def note(function, jobs, workers, gpus):
        asked.append((workers, list(gpus)))
        return ((job, "not trained") for job in jobs)

    monkeypatch.setattr(command, "work", note)
    monkeypatch.setattr(command, "count_cores", lambda: 3)
    monkeypatch.setattr(command, "visible_gpus", lambda: ["4", "6"])
    for words in ([], ["--workers", "3"], ["--device", "cpu"]):
        assert sweep("--fold", "1", "--epochs", "1", *words) == 1
    assert asked == [(2, ["4", "6"]), (3, ["4", "6"]), (3, [])]


@pytest.mark.parametrize(
    ("given", "count", "names"),
    [
        (None, 2, ["0", "1"]),
        ("4,6", 2, ["4", "6"]),
        ("GPU-8a, MIG-3b,7", 2, ["GPU-8a", "MIG-3b"]),  # those that CUDA does not know end the list
        ("4,6", 0, []),
    ],
)
def test_gpus_have_the_names_that_the_process_was_given(monkeypatch, given, count, names):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert visible_gpus() == names
