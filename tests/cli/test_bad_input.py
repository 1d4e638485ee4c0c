"""Mistakes and accidents, as they happen to users: one line, exit code 2, and nothing is lost."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.data.trec import read_run
from rerank.retrieval import bm25 as first_stage
from rerank.training import loop as training
from tests.support.small_collection import command, failed, write_collection


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--seed", "-1"], "--training.seed: got -1"),
        (["--first-stage.k1", "-1"], "--first-stage.k1: got -1.0"),
        (["--first-stage.b", "2"], "--first-stage.b: got 2.0, expected 0 to 1"),
        (["--training.head-lr", "inf"], "--training.head-lr: got inf, expected a finite number"),
        (["--name", "my exp"], "--output.name: got my exp, expected letters"),
        (["--name", "../evil"], "--output.name: got ../evil, expected letters"),
        (["--name", "index"], "--output.name: got index, expected"),
        (["--name", "pretrained-1"], "--output.name: got pretrained-1, expected"),
        (["--collection.folds", "2"], "--collection.folds: got 2"),
        (["--output.folder", "towns.toml"], "towns.toml"),
        (["--epochs", "2.5"], "--epochs: expected a whole number, got 2.5"),
        (["--training.max-tokens-per-forward", "1"], "--training.max-tokens-per-forward: got 1, expected 64 or more"),
        (["--loss.bins", "1e1"], "--loss.bins: expected a whole number, got 1e1"),
        (["--lists.relevant", "1.5"], "--lists.relevant: expected a whole number or all, got 1.5"),
    ],
)
def test_values_that_no_setting_may_have(here, capsys, words, expected):
    assert expected in failed(capsys, *command("--fold", "1", *words))


def test_a_run_is_not_written_over_a_folder(here, capsys):
    main(command("--fold", "1"))
    checkpoint = "runs/towns/smoothi/fold1/checkpoint"
    line = failed(capsys, "score", checkpoint, "runs/towns/bm25.run", "--collection", "towns", "--out", "towns")
    assert "--out towns: is a folder" in line
    assert Path("towns/corpus.jsonl").is_file()


def test_a_failed_first_attempt_does_not_lock_the_experiment(here, capsys):
    text = Path("towns.toml").read_text()
    Path("wrong.toml").write_text(text.replace('"encoder"', '"nowhere"'))
    assert "nowhere" in failed(capsys, "train", "--config", "wrong.toml", "--fold", "1")
    main(command("--fold", "1"))
    assert Path("runs/towns/smoothi/fold1/test.run").exists()


def test_bm25_of_other_documents_is_not_taken(here, capsys):
    shutil.rmtree("towns")
    write_collection(Path("towns"), seed=1)
    line = failed(capsys, *command("--fold", "1"))
    assert "bm25.run: retrieved from other documents" in line


def test_other_folds_do_not_replace_those_of_experiments(here, capsys):
    main(command("--fold", "1"))
    assert "other folds (5, now 3)" in failed(capsys, *command("--fold", "1", "--collection.folds", "3", "--name", "x"))
    assert len(json.loads(Path("runs/towns/folds.json").read_text())) == 5


def test_a_run_without_the_queries_of_a_fold_is_said_before_training(here, capsys):
    tested = json.loads(Path("runs/towns/folds.json").read_text())[0]["test"]
    kept = [line for line in Path("runs/towns/bm25.run").read_text().splitlines() if line.split()[0] not in tested]
    Path("part.run").write_text("\n".join(kept) + "\n")
    line = failed(capsys, *command("--fold", "1", "--first-stage.run", "part.run"))
    assert "fold 1: none of its test queries is judged and has a candidate" in line


def test_a_full_disk_while_training_is_one_line_and_the_epoch_before_is_kept(here, capsys, monkeypatch):
    save = training.save_file

    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(training, "save_file", full)
    assert "No space left" in failed(capsys, *command("--fold", "1"))
    assert not list(Path("runs").rglob("*.part"))
    monkeypatch.setattr(training, "save_file", save)
    main(command("--fold", "1"))
    assert Path("runs/towns/smoothi/fold1/test.run").exists()


def test_an_index_that_lucene_could_not_finish_is_not_kept(here, capsys, monkeypatch):
    """On a full disk Lucene's indexer closes without a word."""
    shutil.rmtree("runs")
    monkeypatch.setattr(first_stage, "count_documents", lambda index: 3)
    assert "is the disk full?" in failed(capsys, "retrieve", "--collection", "towns")
    assert [path.name for path in Path("runs/towns/index").iterdir()] == ["index.lock"]
    monkeypatch.undo()


def test_queries_that_the_collection_lacks_are_said(here, capsys):
    main(command("--fold", "1"))
    Path("more.run").write_text(Path("runs/towns/bm25.run").read_text() + "extra Q0 d0-0 1 1.0 t\n")
    words = ["score", "runs/towns/smoothi/fold1/checkpoint", "more.run", "--collection", "towns", "--out", "new.run"]
    main(words)
    line = (
        "towns: has no text of 1 of the 16 queries of more.run, such as extra: they are not re-ranked, and not in the"
    )
    assert line in capsys.readouterr().err
    assert len(read_run("new.run")) == 15


def test_judgments_that_are_not_utf8_or_not_numbers(here, capsys):
    qrels = Path("towns/qrels/test.tsv")
    text = qrels.read_text()
    qrels.write_bytes(text.encode() + b"q0\td\xff\t1\n")
    assert "expected UTF-8, got d\\xff" in failed(capsys, "retrieve", "--collection", "towns")
    qrels.write_text("q0\td0-0\tone\n" + text)
    assert "test.tsv:1: expected an integer relevance, got one" in failed(capsys, "retrieve", "--collection", "towns")


def test_eval_of_a_folder_names_the_run_in_it(here, capsys):
    assert "runs/towns: is a folder, expected a run file" in failed(capsys, "eval", "runs/towns")


def test_measures_after_the_runs(here, capsys):
    main(["eval", "runs/towns/bm25.run", "--measures", "P@1", "map"])
    assert "P@1" in capsys.readouterr().out


def test_a_closed_pipe_and_a_full_device_are_no_tracebacks(here):
    words = [sys.executable, "-m", "rerank", "eval", "runs/towns/bm25.run"]
    reader = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    reader.wait()
    done = subprocess.run(words, stdout=reader.stdin, stderr=subprocess.PIPE, text=True, check=False)
    reader.stdin.close()
    assert (done.returncode, done.stderr) == (141, "")
    if Path("/dev/full").exists():
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, done.stderr) == (2, "rerank: standard output: No space left on device\n")
