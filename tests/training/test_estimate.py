"""What is said before a training, and that measuring changes nothing of it."""

import logging
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.config import Config, TrainingSettings
from rerank.experiments import sweep
from rerank.experiments import train as experiment
from rerank.training import estimate
from rerank.training.estimate import Cost
from rerank.utils.progress import log
from tests.support.small_collection import command, exit_code
from tests.support.small_features import SETTINGS, write_folds_of_features
from tests.support.small_grid import work_here

GRID = 'fold = "1"\n[[grid]]\ntraining.lists_per_epoch = [8, 32]\n'


def results(folder):
    files = [*folder.glob("checkpoint/*"), folder / "test.run"]
    return {file.name: file.read_bytes() for file in files if file.suffix in (".safetensors", ".pt", ".run")}


def test_a_training_says_what_it_will_do_and_about_how_long(here, capsys, monkeypatch):
    monkeypatch.setattr(
        estimate, "measure", lambda *given: Cost(8, list_seconds=2.0, validated=5, document_seconds=2.0, tested=4)
    )
    main(command("--fold", "2"))
    assert "\ntraining 8 lists in 2 steps an epoch, 2 epochs: about 60 s\n" in capsys.readouterr().err
    main(command("--fold", "all", "--epochs", "1", "--name", "other"))
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("training 8 lists")]
    assert said[0] == "training 8 lists in 2 steps an epoch, 1 epoch, 5 folds: about 3 min"
    assert said[-1] == "training 8 lists in 2 steps an epoch, 1 epoch: about 34 s"
    assert len(said) == 5


@pytest.mark.parametrize("kind", ["text", "features"])
def test_what_is_measured_changes_nothing_of_the_training(kind, here, capsys, monkeypatch):
    words = command("--fold", "1")
    if kind == "features":
        write_folds_of_features(Path("MQ"))
        Path("features.toml").write_text(SETTINGS)
        words = ["train", "--config", "features.toml", "--collection", "MQ", "--fold", "1"]
    main([*words, "--name", "measured"])
    assert "\ntraining " in capsys.readouterr().err
    monkeypatch.setattr(experiment, "say_before", lambda *given: None)
    main([*words, "--name", "plain"])
    measured, plain = (next(Path("runs").glob(f"*/{name}/fold1")) for name in ("measured", "plain"))
    assert results(measured)
    for name, content in results(measured).items():
        if name != "test.run":  # the run names its experiment
            assert results(plain)[name] == content


def test_nothing_is_measured_where_nothing_is_logged(here, monkeypatch):
    monkeypatch.setattr(estimate, "measure", lambda *given: 1 / 0)
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        training = TrainingSettings(epochs=1, lists_per_epoch=2, lists_per_step=2)
        experiment.train_folds(Config("towns", encoder="encoder", training=training), "1")
    finally:
        log.setLevel(level)


def test_the_documents_that_are_validated_and_tested_count(here, monkeypatch):
    costs = []

    def kept(*given):
        costs.append(estimate_of(*given))
        return costs[-1]

    estimate_of = estimate.measure
    monkeypatch.setattr(estimate, "measure", kept)
    main(command("--fold", "1"))
    folder = next(Path("runs").glob("*/*/fold1"))
    lines = {split: (folder / f"{split}.run").read_text().count("\n") for split in ("valid", "test")}
    assert [(cost.validated, cost.tested) for cost in costs] == [(lines["valid"], lines["test"])]


def test_a_sweep_says_how_long_and_weighs_its_folds_by_what_they_cost(here, capsys, monkeypatch):
    monkeypatch.setattr(
        sweep, "measure", lambda *given: Cost(lists=8, list_seconds=2.0, validated=5, document_seconds=1.0)
    )
    monkeypatch.setattr(sweep, "work", work_here)
    jobs = []
    monkeypatch.setattr(sweep, "_train", lambda threads, job: jobs.append(job))
    Path("grid.toml").write_text(GRID)
    assert exit_code("sweep", "grid.toml", "--config", "towns.toml", "--epochs", "2", "--workers", "1") == 0
    told = capsys.readouterr().err
    assert "\ntraining 2 folds of 2 experiments: about 3 min\n" in told
    assert sorted(job.seconds for job in jobs) == [2 * (8 * 2.0 + 5), 2 * (32 * 2.0 + 5)]


def test_workers_on_a_cpu_save_time_where_a_training_leaves_cores(here, capsys, monkeypatch):
    monkeypatch.setattr(
        sweep, "measure", lambda *given: Cost(lists=8, list_seconds=60.0, validated=0, document_seconds=0)
    )
    monkeypatch.setattr(sweep, "work", work_here)
    monkeypatch.setattr(sweep, "_train", lambda threads, job: None)
    monkeypatch.setattr(sweep, "count_cores", lambda: 4)
    Path("grid.toml").write_text('fold = "1"\n[[grid]]\ntraining.seed = [1, 2, 3, 4]\n')
    for threads, said in ((1, "16 min"), (2, "32 min"), (4, "1 h 4 min")):
        monkeypatch.setattr(sweep.torch, "get_num_threads", lambda threads=threads: threads)
        assert exit_code("sweep", "grid.toml", "--config", "towns.toml", "--epochs", "2", "--workers", "4") == 0
        assert f"training 4 folds of 4 experiments: about {said}\n" in capsys.readouterr().err
