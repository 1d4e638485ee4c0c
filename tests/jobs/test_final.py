"""`rerank train --fold final`: the model to deploy, as a user types it."""

import json
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.data.trec import read_run
from rerank.jobs import train as training
from rerank.runs.manifest import write_manifest
from tests.support.small_collection import command, exit_code, failed, in_a_copy

EXPERIMENT = Path("runs/towns/smoothi")
FINAL = EXPERIMENT / "final"
QUERIES = [f"q{number}" for number in range(15)]


@pytest.fixture(scope="module")
def home(home, tmp_path_factory):
    """A copy of the collection with an experiment that has two finished folds, whose best epochs are 1 and 4."""
    with in_a_copy(home, tmp_path_factory) as folder:
        for fold, best in (("1", 1), ("3", 4)):
            main(command("--fold", fold))
            change(EXPERIMENT / f"fold{fold}" / "manifest.json", lambda facts, best=best: facts | {"best_epoch": best})
    return folder


def change(file, changed):
    write_manifest(file, changed(json.loads(file.read_text())))


def log_of(folder):
    records = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def verified(capsys, folder):
    capsys.readouterr()
    return exit_code("verify", str(folder)), capsys.readouterr().out


def test_every_judged_query_trains_or_validates_once(here, capsys):
    folds = {file: file.read_bytes() for file in Path("runs").rglob("*") if file.is_file()}
    main(command("--fold", "final"))
    told = capsys.readouterr()
    assert "final: all 15 judged queries of the collection, those that test folds too, train but 2" in told.err
    assert "which validate; drawn by seed 0; none is left to test" in told.err
    assert told.out == "runs/towns/smoothi\n"
    facts = json.loads((FINAL / "manifest.json").read_text())
    assert sorted(facts["fold"]["train"] + facts["fold"]["valid"]) == sorted(QUERIES)
    assert facts["fold"]["test"] == []
    assert set(read_run(FINAL / "valid.run")) == set(facts["fold"]["valid"])
    assert list(facts["outcome"]) == ["valid"]
    valid = [record["valid"] for record in log_of(FINAL)]
    assert facts["best_valid"] == max(valid)
    assert facts["best_epoch"] == valid.index(max(valid)) + 1
    found = {path.name for path in FINAL.iterdir()} - {"fold.lock"}
    assert found == {"checkpoint", "valid.run", "log.jsonl", "manifest.json"}
    assert {file: file.read_bytes() for file in folds} == folds  # the folds and what evaluation reads are untouched
    main(command("--fold", "final"))
    assert "smoothi, fold final: finished already" in capsys.readouterr().err
    assert json.loads((FINAL / "manifest.json").read_text()) == facts


def test_it_trains_on_all_queries_for_the_epochs_of_the_folds(here, capsys):
    words = command("--fold", "final", "--training.epochs-from", str(EXPERIMENT), "--epochs", "2")
    main(words)
    told = capsys.readouterr().err
    assert "train, for 3 epochs: the median of the folds' best epochs (fold 1 1, fold 3 4)" in told  # 2.5, rounded up
    assert "validation" not in told
    facts = json.loads((FINAL / "manifest.json").read_text())
    assert facts["fold"] == {"name": "final", "train": QUERIES, "valid": [], "test": []}
    assert (facts["epochs"], facts["best_epoch"], facts["best_valid"], facts["outcome"]) == (3, 3, None, {})
    assert facts["epochs_from"] == {"folder": str(EXPERIMENT), "best_epochs": {"1": 1, "3": 4}, "epochs": 3}
    assert not (FINAL / "valid.run").exists()
    assert [record["epoch"] for record in log_of(FINAL)] == [1, 2, 3]
    main(command("--fold", "5"))  # the folds' settings are the same as before


def test_its_learning_rates_are_those_of_the_folds_up_to_its_last_epoch(here, capsys):
    """The schedule is over the maximum number of epochs, which then has to be the same."""
    settings = ("--training.schedule", "linear", "--epochs", "4", "--name", "falling")
    main(command("--fold", "1", *settings))
    fold = Path("runs/towns/falling")
    words = ("--fold", "final", "--training.epochs-from", str(fold), *settings)
    logs = []
    for best in (4, 2):
        change(fold / "fold1" / "manifest.json", lambda facts, best=best: facts | {"best_epoch": best})
        main(command(*words))
        logs.append(log_of(fold / "final"))
        (fold / "final").rename(f"final-of-{best}")
    assert len(logs[0]) == 4
    assert logs[1] == logs[0][:2]
    line = failed(capsys, *command(*words[:-4], "--epochs", "3", "--name", "other"))
    assert "fold 1 was trained with other settings: training.epochs = 4, now 3; give the settings of the folds" in line


def test_an_interrupted_one_goes_on_and_ends_as_the_whole(here, capsys, interrupted):
    words = command("--fold", "final", "--training.epochs-from", str(EXPERIMENT))
    assert interrupted(words) == 130
    assert not (FINAL / "manifest.json").exists()
    assert "begun without validation, now with" in failed(capsys, *command("--fold", "final"))
    main(words)
    assert "resuming after epoch 1" in capsys.readouterr().err
    main([*words, "--name", "whole"])
    assert log_of(FINAL) == log_of(Path("runs/towns/whole/final"))
    weights = [
        folder / "final" / "checkpoint" / "model.safetensors" for folder in (EXPERIMENT, EXPERIMENT.parent / "whole")
    ]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_a_crash_before_the_manifest_loses_nothing(here, capsys, monkeypatch):
    def crash(*arguments):
        raise OSError("crash")

    with monkeypatch.context() as patch:
        patch.setattr(training, "write_manifest", crash)
        with pytest.raises(OSError, match="crash"):
            main(command("--fold", "final"))
    assert (FINAL / "state").is_dir()
    main(command("--fold", "final"))
    assert "resuming after epoch 2" in capsys.readouterr().err
    assert len(log_of(FINAL)) == 2
    assert not (FINAL / "state").exists()


def test_verify_checks_it(here, capsys):
    main(command("--fold", "final"))
    main(command("--fold", "final", "--name", "alone", "--training.epochs-from", str(EXPERIMENT)))
    for folder in (EXPERIMENT, FINAL, Path("runs/towns/alone"), Path("runs/towns")):
        code, table = verified(capsys, folder)
        assert code == 0
        assert "final " in table
    run = FINAL / "valid.run"
    run.write_text(run.read_text().replace(" 1 ", " 1 9", 1))
    code, table = verified(capsys, FINAL)
    assert code == 1
    assert "valid.run: expected SHA-256" in table


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--fold", "2"], "--training.epochs-from runs/towns/smoothi: acts on --fold final alone, got --fold 2"),
        (["--lr", "1"], "fold 1 was trained with other settings: training.lr = 0.001, now 1.0"),
        (["--encoder.pooling", "max", "--batch-size", "2"], "pooling = mean, now max; training.lists_per_step"),
        (["--training.epochs-from", "runs/towns"], "expected runs/<collection>/<experiment> with a finished"),
        (["--training.epochs-from", "nowhere"], "--training.epochs-from nowhere: no such folder: expected runs/"),
    ],
)
def test_a_mistake_is_one_line(here, capsys, words, expected):
    given = dict(zip(words[::2], words[1::2], strict=True))
    flags = {"--fold": "final", "--name": "new", "--training.epochs-from": str(EXPERIMENT)} | given
    assert expected in failed(capsys, *command(*(word for pair in flags.items() for word in pair)))
    assert not Path("runs/towns/new").exists()


def test_a_damaged_manifest_of_a_fold_is_named(here, capsys):
    manifest = EXPERIMENT / "fold3" / "manifest.json"
    manifest.write_text("{}")
    line = failed(capsys, *command("--fold", "final", "--training.epochs-from", str(EXPERIMENT)))
    assert f"{manifest}: has no best_epoch and no manifest_hash" in line
