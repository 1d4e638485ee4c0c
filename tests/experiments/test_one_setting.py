"""All folds of an experiment have the same settings, whatever commands run side by side, are killed, or ran before."""

import json
import re
import shutil
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.experiments import train as training
from rerank.experiments.runs.settings import read_toml
from tests.support.small_collection import command, failed

EXPERIMENT = Path("runs/towns/one")
ONE = ("--name", "one", "--epochs", "1", "--collection.folds", "3")
OTHER = (*ONE, "--lr", "2e-3")


def beside(monkeypatch, second, words=ONE):
    """Runs `second` while a command of these words is about to train, and then kills that."""

    def train_fold(experiment, fold, left):
        with monkeypatch.context() as inner:
            inner.setattr(training, "train_fold", train)
            second()
        raise KeyboardInterrupt

    train = training.train_fold
    with monkeypatch.context() as patch:
        patch.setattr(training, "train_fold", train_fold)
        with pytest.raises(SystemExit) as ended:
            main(command("--fold", "1", *words))
    assert ended.value.code == 130


def test_other_settings_are_refused_before_the_first_epoch_of_a_command_ends(here, monkeypatch, capsys):
    told = []
    beside(monkeypatch, lambda: told.append(failed(capsys, *command("--fold", "2", *OTHER))))
    assert "config.toml: this experiment was begun with other settings: there training.lr = 0.001; here" in told[0]
    assert read_toml(EXPERIMENT / "config.toml")["training"]["lr"] == 1e-3
    assert not (EXPERIMENT / "fold2").exists()


def test_the_same_settings_train_other_folds_meanwhile(here, monkeypatch):
    beside(monkeypatch, lambda: main(command("--fold", "2", *ONE)))
    assert (EXPERIMENT / "fold2" / "test.run").is_file()


def test_settings_that_trained_nothing_are_replaced(here, monkeypatch):
    beside(monkeypatch, lambda: None)
    main(command("--fold", "1", *OTHER))
    assert read_toml(EXPERIMENT / "config.toml")["training"]["lr"] == 2e-3


def test_folds_that_do_not_agree_are_not_joined(here, capsys):
    main(command(*ONE))
    all_run = (EXPERIMENT / "all.run").read_bytes()
    shutil.copytree(EXPERIMENT, "before")
    main(command("--fold", "2", "--name", "other", *OTHER[2:]))
    (EXPERIMENT / "all.run").unlink()

    def refused(reason):
        line = failed(capsys, *command(*ONE))
        assert re.search(rf"one/fold2: not joined with the other folds: {reason}; remove the folder to train", line)
        assert not (EXPERIMENT / "all.run").exists()
        shutil.rmtree(EXPERIMENT / "fold2")
        shutil.copytree("before/fold2", EXPERIMENT / "fold2")

    shutil.rmtree(EXPERIMENT / "fold2")
    shutil.copytree("runs/towns/other/fold2", EXPERIMENT / "fold2")
    refused(r"training\.lr = 0\.002, now 0\.001")
    test_run = EXPERIMENT / "fold2" / "test.run"
    test_run.write_text(test_run.read_text().replace(" Q0 d", " Q0 x", 1))
    refused("test.run is not the file that manifest.json records")
    main(command(*ONE))
    assert (EXPERIMENT / "all.run").read_bytes() == all_run


def test_folds_of_another_first_stage_are_not_joined(here, capsys):
    words = (*ONE, "--first-stage.run", "mine.run")
    shutil.copy("runs/towns/bm25.run", "mine.run")
    main(command("--fold", "1", *words))
    main(command("--fold", "2", *words))
    lines = Path("mine.run").read_text().splitlines()
    Path("mine.run").write_text("\n".join(lines[:-1]) + "\n")
    line = failed(capsys, *command("--fold", "all", *words))
    assert "one/fold3: not joined with the other folds: another first stage than fold 1; remove the folder" in line


def test_folds_of_other_judgments_are_not_joined(here, capsys):
    quick = command("--collection.folds", "3", "--epochs", "1", "--name", "judged")
    main([*quick, "--fold", "1"])
    qrels, (first, *_) = Path("towns/qrels/test.tsv"), json.loads(Path("runs/towns/folds.json").read_text())
    qrels.write_text(qrels.read_text() + f"{first['valid'][0]}\td14-0\t1\n")
    line = failed(capsys, *quick)
    assert "judged/fold1: not joined with the other folds: other judgments of its validation queries than now" in line
    assert not Path("runs/towns/judged/all.run").exists()
    shutil.rmtree("runs/towns/judged/fold1")
    main(quick)
    assert Path("runs/towns/judged/all.run").exists()
