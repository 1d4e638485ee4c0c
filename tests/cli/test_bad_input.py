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
from rerank.retrieval import lucene_index
from rerank.training import linked_tensors as training
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
        (["--seed", str(2**63)], f"--training.seed: got {2**63}, expected 0 to {2**63 - 1}"),
        (["--depth", str(2**31)], f"--first-stage.depth: got {2**31}, expected {2**31 - 1} at most"),
        (["--first-stage.k1", "1e308"], "--first-stage.k1: got 1e+308, expected 0 to 1e+06"),
        (["--lr", "1e39"], "--training.lr: got 1e+39, expected 3.4028234e+38 at most"),
        (["--name", "x" * 300], "expected 200 bytes at most, got 300"),
        (["--collection", "x" * 300], "File name too long"),
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
    monkeypatch.setattr(lucene_index, "count_documents", lambda index: 3)
    assert "Lucene cannot write it (disk full?)" in failed(capsys, "retrieve", "--collection", "towns")
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


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"_id": "d", "text": "wing \\ud800"}', "expected Unicode text, got '\\ud800'"),
        (b'{"_id": "d", "text": ' + b"[" * 100_000, "too many brackets in each other"),
        (b'{"_id": "a\\u0000b", "text": "x"}', "the _id 'a\\x00b' has a NUL character"),
        (b'{"_id": "a\\nb", "text": "x"}', "the _id 'a\\nb' is empty or has white space"),
        (b'{"_id": "' + b"a" * 40_000 + b'", "text": "x"}', "has 40000 bytes; expected 32766 at most"),
        (b'{"_id": "d", "title": false, "text": "x"}', "expected a text under 'title', got False"),
        (b'{"_id": "d", "title": [], "text": "x"}', "expected a text under 'title', got []"),
    ],
)
def test_documents_that_no_run_file_or_index_can_hold_are_refused_with_their_line(here, capsys, line, expected):
    shutil.rmtree("runs")
    with Path("towns/corpus.jsonl").open("ab") as corpus:
        corpus.write(line + b"\n")
    told = failed(capsys, "retrieve", "--collection", "towns")
    assert "towns/corpus.jsonl:91: " in told
    assert expected in told
    assert len(told) < 500


def test_settings_nested_too_deep_are_one_line(here, capsys):
    Path("deep.toml").write_text("a = " + "[" * 100_000)
    line = failed(capsys, "train", "--config", "deep.toml")
    assert "--config deep.toml: not TOML that can be read: too many brackets" in line


def test_a_damaged_origin_of_the_first_stage_says_what_to_remove(here, capsys):
    Path("runs/towns/bm25.json").write_text("[1]")
    line = failed(capsys, *command("--fold", "1"))
    assert "bm25.json: expected `object`, got `array`; remove it and bm25.run to retrieve again" in line


def test_a_checkpoint_that_is_gone_is_not_looked_for_on_the_hub(here, capsys, interrupted):
    words = command("--fold", "1", "--epochs", "1")
    assert interrupted(words) == 130
    shutil.rmtree("runs/towns/smoothi/fold1/checkpoint")
    line = failed(capsys, *words)
    assert "fold1: the best epoch's files have changed since they were written (checkpoint/config.json" in line
    assert line.endswith("expected a file, found none); remove runs/towns/smoothi/fold1/state to train again")
    line = failed(capsys, "score", "runs/a/b/fold1/checkpoint", "runs/towns/bm25.run", "--out", "new.run")
    assert "encoder runs/a/b/fold1/checkpoint: no such folder; check the path" in line


@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        ("x", "expected `object`, got `str` - at `$.rerank`"),
        ({"pooling": 3}, "expected `str`, got `int` - at `$.rerank.pooling`"),
        ({"max_doc_tokens": 0}, "expected 1 or more under 'max_doc_tokens', got 0"),
        ({"passage_overlap": -1}, "expected 0 or more under 'passage_overlap', got -1"),
    ],
)
def test_damaged_settings_of_a_checkpoint_are_named(here, capsys, saved, expected):
    config = Path("encoder/config.json")
    config.write_text(json.dumps(json.loads(config.read_text()) | {"rerank": saved}))
    assert f"encoder/config.json: {expected}" in failed(capsys, *command("--fold", "1"))


@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits of files")
def test_a_file_that_is_larger_than_the_limit_is_one_line(here):
    main(command("--fold", "1"))
    limited = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (900, 900)); from rerank.cli.main import main; "
        "main(['plot', 'learning', 'runs/towns/smoothi', '--out', 'chart.pdf'])"
    )
    done = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("rerank: chart.pdf: cannot be written: File too large")
