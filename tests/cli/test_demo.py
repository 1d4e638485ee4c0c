"""The demo, shortened: from nothing to the table, and really learned."""

from dataclasses import replace

import pytest

from rerank.cli import demo as demo_command
from rerank.cli.main import main
from rerank.data import demo
from rerank.data.runs import read_qrels, read_run
from rerank.evaluation.evaluate import evaluate
from rerank.experiments.runs.run_files import compare_files
from rerank.experiments.train import train_folds
from tests.support.small_collection import next_commands


@pytest.fixture
def shortened(monkeypatch):
    def shorten(**training):
        whole = demo_command.demo_config

        def config(*arguments):
            made = whole(*arguments)
            return replace(made, training=replace(made.training, **training))

        monkeypatch.setattr(demo_command, "demo_config", config)

    return shorten


def test_from_nothing_to_the_table_and_at_once_again(tmp_path, monkeypatch, capsys, shortened):
    shortened(epochs=1, lists_per_epoch=4)
    monkeypatch.setattr(demo, "TOWNS", 15)
    monkeypatch.chdir(tmp_path)
    main(["demo"])
    table, told = capsys.readouterr()
    assert "training hinge, fold 1, with" in told
    assert "over 3 folds, 15 queries" in table
    assert all(f"\n{name}" in table for name in ("bm25", "hinge", "smoothi"))
    main(["demo"])
    again = capsys.readouterr()
    assert again.out == table
    assert "remove the folder to make them again" in again.err
    search, report = next_commands(again.err)
    assert search[:2] == ["search", "runs/demo/towns/smoothi/fold1/checkpoint"]
    main(report)
    assert capsys.readouterr().out == "runs/demo/towns/report.html\n"


def test_the_re_ranker_beats_bm25_because_of_what_it_learned(tmp_path, monkeypatch, shortened):
    shortened(epochs=2, lists_per_epoch=120)
    monkeypatch.setattr(demo, "TOWNS", 60)
    demo_command.make_inputs(tmp_path)
    folder = train_folds(demo_command.demo_config(tmp_path, "smoothi"), "3")
    run, bm25 = read_run(folder.fold("3").test_run), read_run(tmp_path / "towns" / "bm25.run")
    qrels = {q: judged for q, judged in read_qrels(tmp_path / "towns" / "qrels.txt").items() if q in run}
    ours, theirs = (sum(evaluate(qrels, r, ["nDCG@10"])["nDCG@10"].values()) / len(qrels) for r in (run, bm25))
    assert ours > theirs + 0.2
    assert compare_files([folder.fold("3").test_run], fold="3").queries.averaged_over == "20 queries of fold 3"
