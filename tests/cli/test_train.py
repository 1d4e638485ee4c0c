"""`rerank train` as a user types it: train, resume, evaluate; devices and precisions; several processes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rerank.cli.main import main
from rerank.data.runs import read_run
from rerank.training import loop
from tests.support.fake_cards import insert_card
from tests.support.processes import in_two_processes
from tests.support.small_collection import (
    command,
    epochs_of,
    exit_code,
    failed,
    run_beside_another,
    write_qrels,
    write_split,
)


def test_both_losses_over_all_folds_and_the_table(here, capsys):
    quick = ("--collection.folds", "3", "--epochs", "1")
    main(command("--fold", "1", "--loss", "hinge", *quick))
    assert not (here / "runs" / "towns" / "hinge" / "all.run").exists()
    main(command("--fold", "all", "--loss", "hinge", *quick))
    main(command("--loss", "smoothi", *quick))
    folds = json.loads((here / "runs" / "towns" / "folds.json").read_text())
    first_stage = read_run(here / "runs" / "towns" / "bm25.run")
    for name in ("hinge", "smoothi"):
        folder = here / "runs" / "towns" / name
        for fold in folds:
            run = read_run(folder / f"fold{fold['name']}" / "test.run")
            assert set(run) == set(fold["test"])
            assert set(read_run(folder / f"fold{fold['name']}" / "valid.run")) == set(fold["valid"])
            assert not (folder / f"fold{fold['name']}" / "state").exists()
        assert not (folder / "final").exists()
        everything = read_run(folder / "all.run")
        assert {q: set(documents) for q, documents in everything.items()} == {q: set(d) for q, d in first_stage.items()}
    manifest = json.loads((here / "runs" / "towns" / "hinge" / "fold1" / "manifest.json").read_text())
    assert manifest["config"]["loss"]["name"] == "hinge"
    assert manifest["fold"] == folds[0]
    assert manifest["texts"]["documents"] == 90
    assert manifest["max_tokens_per_forward"] == 4096
    assert manifest["passages"] == "packed"
    assert manifest["attention_dropout"] == {"encoder": 0.1, "applied": 0.0}
    assert (manifest["precision"], manifest["tf32"]) == ("float32", False)
    capsys.readouterr()
    main(["eval", *(f"runs/towns/{name}" for name in ("bm25.run", "hinge/all.run", "smoothi/all.run"))])
    table = capsys.readouterr().out
    assert "over 3 folds, 15 queries" in table
    assert all(f"\n{name}" in table for name in ("bm25", "hinge", "smoothi"))
    main(["eval", "runs/towns/hinge/fold1/test.run", "--fold", "1", "--format", "markdown"])
    assert "5 queries" in capsys.readouterr().out


def test_a_finished_fold_is_not_trained_again_and_other_settings_are_refused(there, capsys):
    run = there / "runs" / "towns" / "smoothi" / "fold1" / "test.run"
    before = run.stat().st_mtime_ns
    main(command("--fold", "1"))
    assert run.stat().st_mtime_ns == before
    assert "finished already" in capsys.readouterr().err
    line = failed(capsys, *command("--fold", "2", "--training.lr", "5e-5"))
    assert "there training.lr = 0.001; here training.lr = 5e-05" in line
    line = failed(capsys, *command("--fold", "2", "--loss", "hinge", "--name", "smoothi"))
    assert "there loss.name = smoothi; here loss.name = hinge" in line


def test_an_interrupted_run_goes_on_and_ends_with_the_same_file(here, capsys, interrupted):
    assert interrupted(command("--fold", "2")) == 130
    assert "the same command goes on" in capsys.readouterr().err
    main(command("--fold", "2"))
    assert "resuming after epoch 1" in capsys.readouterr().err
    main(command("--fold", "2", "--name", "whole"))
    runs = [(here / "runs" / "towns" / name / "fold2" / "test.run").read_text() for name in ("smoothi", "whole")]
    assert runs[0].replace(" smoothi\n", " whole\n") == runs[1]


LISTS, JUDGED = Path("lists.jsonl"), Path("towns/qrels/test.tsv")
LIST = '{"query_id": "q0", "doc_ids": ["d0-0", "d0-1"], "labels": [1, 0]}\n'


def append(path, line):
    path.write_text(path.read_text() + line)


@pytest.mark.parametrize(
    ("changed", "more", "change"),
    [
        ("training lists", ["--training.lists", "lists.jsonl"], lambda: append(LISTS, LIST)),
        ("candidates", ["--first-stage.run", "bm25.run"], lambda: append(Path("bm25.run"), "q0 Q0 d1-0 9 -9 x\n")),
        ("judgments", [], lambda: append(JUDGED, "q0\td14-0\t1\nq1\td14-0\t1\nq2\td14-0\t1\n")),
        ("folds and other judgments", ["--first-stage.run", "bm25.run"], lambda: write_qrels(range(10), JUDGED)),
    ],
)
def test_a_training_does_not_go_on_with_other_inputs(here, capsys, interrupted, changed, more, change):
    """The manifest would name the later ones alone, and a query that trained could be a test query by now."""
    LISTS.write_text("".join(LIST.replace("q0", f"q{number}") for number in range(15)))
    shutil.copy("runs/towns/bm25.run", "bm25.run")
    words = command("--fold", "2", *more)
    assert interrupted(words) == 130
    change()
    state = "runs/towns/smoothi/fold2/state"
    line = failed(capsys, *words)
    assert f"{state}: cannot resume training (it began with other {changed}" in line
    shutil.rmtree(state)
    main(words)
    assert len(epochs_of(Path("runs/towns/smoothi/fold2"))) == 2
    assert not Path("runs/towns/smoothi/fold2/inputs.json").exists()


def test_two_processes_train_the_same_model_and_score_every_document_once(here):
    """Without dropout, which draws other values in each process."""
    config = json.loads((here / "encoder" / "config.json").read_text())
    (here / "encoder" / "config.json").write_text(json.dumps(config | {"hidden_dropout_prob": 0.0}))
    main(command("--fold", "1", "--name", "one"))
    words = command("--fold", "1", "--name", "two", "--training.max-tokens-per-forward", "100")  # less than a list has
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "-m", "rerank", *words]
    done = subprocess.run(launch, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    one, two = (read_run(here / "runs" / "towns" / name / "fold1" / "test.run") for name in ("one", "two"))
    assert {q: list(documents) for q, documents in one.items()} == {q: list(documents) for q, documents in two.items()}
    for query_id, documents in one.items():
        assert two[query_id] == pytest.approx(documents, abs=1e-3)  # Adam makes much of the last bit of a tiny gradient
    assert done.stderr.count("epoch 2: loss") == 1
    manifest = json.loads((here / "runs" / "towns" / "two" / "fold1" / "manifest.json").read_text())
    assert manifest["processes"] == 2
    assert manifest["max_tokens_per_forward"] == 100


def test_a_fold_is_trained_by_one_command_at_a_time(here, capsys):
    run_beside_another(capsys, here / "runs" / "towns" / "smoothi" / "fold1", "fold", *command("--fold", "1"))
    assert "epoch 2: loss" in capsys.readouterr().err
    assert len(read_run("runs/towns/smoothi/fold1/test.run")) == 3


def test_any_run_stands_in_for_bm25_and_queries_without_a_relevant_candidate_are_skipped_aloud(here, capsys):
    lines = [f"q{q} Q0 d{q}-{i} {i + 1} {10 - i} mine" for q in range(15) for i in ((1, 2) if q % 2 else (0, 1))]
    Path("mine.run").write_text("\n".join(lines) + "\n")
    main(command("--fold", "1", "--first-stage.run", "mine.run"))
    assert "training queries have no relevant candidate: skipped" in capsys.readouterr().err
    assert {len(documents) for documents in read_run("runs/towns/smoothi/fold1/test.run").values()} == {2}


def test_other_texts_of_the_judged_queries_train_and_are_in_the_report(there, capsys):
    records = [json.loads(line) for line in Path("towns/queries.jsonl").read_text().splitlines()]
    lines = [f"{record['_id']}\tgood {record['text']}\n" for record in records]
    Path("rewritten.tsv").write_text("".join([*lines, "n1\tnot judged\n"]))
    words = ["--fold", "1", "--name", "rewritten", "--collection.queries", "rewritten.tsv"]
    main(command(*words))
    facts = json.loads(Path("runs/towns/rewritten/fold1/manifest.json").read_text())
    assert Path(facts["first_stage"]["run"]).match("runs/towns/bm25-queries=rewritten-*.run")
    assert exit_code("verify", "runs/towns/rewritten") == 0
    main(["report", "runs/towns/rewritten"])
    assert "good amber0" in Path("runs/towns/rewritten/report.html").read_text()
    Path("rewritten.tsv").write_text("".join(lines[1:]))
    line = failed(capsys, *command(*words))
    assert "rewritten.tsv: has no text of 1 of the 15 judged queries, such as q0; training" in line


def test_no_command_takes_the_cpu_for_a_card_that_torch_cannot_use(here, capsys, monkeypatch):
    insert_card(monkeypatch, "Tesla K80", (3, 7))
    score = ["score", "encoder", "runs/towns/bm25.run", "--collection", "towns", "--out", "out.run"]
    distill = ["distill", "encoder", "--student", "encoder", "--collection", "towns"]
    for words in (command("--fold", "1"), score, distill):
        assert "cannot run on the NVIDIA GPU of this machine: it has compute capability 3.7" in failed(capsys, *words)


def test_matched_pairs_are_trained_with(here):
    words = ["--fold", "1", "--loss", "hinge", "--device", "cpu", "--loss.margin", "0.01"]  # some pairs are far enough
    others = {"two": ["--loss.pairs", "matched"], "plain": []}
    losses = {}
    for name, more in others.items():
        main(command(*words, "--name", name, *more))
        losses[name] = [epoch["loss"] for epoch in epochs_of(here / "runs" / "towns" / name / "fold1")]
    assert losses["two"] != losses["plain"]
    config = json.loads((here / "runs" / "towns" / "two" / "fold1" / "manifest.json").read_text())["config"]
    assert config["loss"] == {"name": "hinge", "pairs": "matched", "margin": 0.01}


def test_a_deterministic_run_on_a_cpu_is_the_run_without(here, monkeypatch):
    during, save = [], loop.save_state

    def watch(*arguments):
        during.append(torch.are_deterministic_algorithms_enabled())
        return save(*arguments)

    monkeypatch.setattr(loop, "save_state", watch)
    words = command("--fold", "1", "--device", "cpu", "--training.epochs", "1")
    main([*words, "--name", "always"])
    main([*words, "--name", "same", "--training.deterministic"])
    assert during == [False, True]
    assert not torch.are_deterministic_algorithms_enabled()
    always, deterministic = (here / "runs" / "towns" / name / "fold1" / "test.run" for name in ("always", "same"))
    assert read_run(always) == read_run(deterministic)


def ended(words):
    """The exit code of a command, and whether it leaves a group of processes."""
    try:
        main(words)
    except SystemExit as error:
        return error.code, torch.distributed.is_initialized()
    return 0, torch.distributed.is_initialized()


def lines_of(folder, rank):
    return [line for line in (folder / f"log{rank}").read_text().splitlines() if line.strip()]


def test_each_line_is_printed_once_and_the_group_is_ended(here, tmp_path):
    write_split(here / "towns", range(8), range(8, 10), range(10, 15))
    for epochs in ("1", "2"):
        words = command("--name", f"of{epochs}", "--training.epochs", epochs)
        assert in_two_processes(tmp_path, ended, words) == [(0, False)] * 2
        told = lines_of(tmp_path, 0)
        assert sum("published split: 8 queries train" in line for line in told) == 1
        assert sum("epoch 1: loss" in line for line in told) == 1
        assert not [line for line in lines_of(tmp_path, 1) if line in told]
    assert len(read_run(here / "runs/towns/of2/foldsplit/test.run")) == 5
