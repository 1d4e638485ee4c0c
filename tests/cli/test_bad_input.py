"""Accidents, as they happen to users: one line, exit code 2, and nothing is lost."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rerank.cli.main import main, run_and_exit
from rerank.retrieval import lucene_index
from tests.support.small_collection import command, failed


def test_a_failed_first_attempt_does_not_lock_the_experiment(here, capsys):
    text = Path("towns.toml").read_text()
    Path("wrong.toml").write_text(text.replace('"encoder"', '"nowhere"'))
    assert "nowhere" in failed(capsys, "train", "--config", "wrong.toml", "--fold", "1")
    main(command("--fold", "1"))
    assert Path("runs/towns/smoothi/fold1/test.run").exists()


def test_a_run_without_the_queries_of_a_fold_is_said_before_training(here, capsys):
    tested = json.loads(Path("runs/towns/folds.json").read_text())[0]["test"]
    kept = [line for line in Path("runs/towns/bm25.run").read_text().splitlines() if line.split()[0] not in tested]
    Path("part.run").write_text("\n".join(kept) + "\n")
    line = failed(capsys, *command("--fold", "1", "--first-stage.run", "part.run"))
    assert "fold 1: none of its test queries is judged and has a candidate" in line


def test_a_full_disk_while_training_is_one_line_and_the_epoch_before_is_kept(here, capsys, monkeypatch):
    save = torch.save

    def save_to_a_full_disk(tensors, out):
        with Path("/dev/full").open("wb") as full:
            save(tensors, full)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", save_to_a_full_disk)
        assert "No space left" in failed(capsys, *command("--fold", "1"))
    assert not list(Path("runs").rglob("*.part"))
    main(command("--fold", "1"))
    assert Path("runs/towns/smoothi/fold1/test.run").exists()


def test_an_index_that_lucene_could_not_finish_is_not_kept(here, capsys, monkeypatch):
    """On a full disk Lucene's indexer closes without a word."""
    shutil.rmtree("runs")
    monkeypatch.setattr(lucene_index, "count_documents", lambda index: 3)
    assert "(disk full?): expected an index of 90 documents" in failed(capsys, "retrieve", "--collection", "towns")
    assert [path.name for path in Path("runs/towns/index").iterdir()] == ["index.lock"]
    monkeypatch.undo()


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


def test_a_checkpoint_that_is_gone_says_what_to_remove(here, capsys, interrupted):
    words = command("--fold", "1", "--epochs", "1")
    assert interrupted(words) == 130
    shutil.rmtree("runs/towns/smoothi/fold1/checkpoint")
    line = failed(capsys, *words)
    assert "fold1: the best epoch's files have changed since they were written (checkpoint/config.json" in line
    assert line.endswith("expected a file, found none); remove runs/towns/smoothi/fold1/state to train again")


def raises(error):
    """A call that raises the error."""

    def call():
        raise error

    return lambda _=None: run_and_exit(call)


@pytest.mark.parametrize("file", ["some/file", b"some/file"])
def test_an_error_of_the_system_about_a_file_is_one_line(capsys, file):
    for number in (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EMFILE, errno.ENOENT, errno.EEXIST):
        line = failed(capsys, main=raises(OSError(number, os.strerror(number), file)))
        assert line == f"rerank: some/file: {os.strerror(number)}"


def test_an_error_of_the_system_without_the_name_of_a_file_keeps_its_traceback():
    """It may be a mistake in a program."""
    refused, numbered = OSError(errno.ECONNREFUSED, "refused"), OSError(errno.EACCES, "of an open file", 3)
    for error in (refused, numbered, OSError("of another package")):
        with pytest.raises(OSError) as raised:  # noqa: PT011 - the same object
            raises(error)()
        assert raised.value is error
