"""The demo, shortened: from nothing to the table, and really learned."""

from dataclasses import replace

import pytest

from rerank.cli import demo as demo_command
from rerank.cli.main import main
from rerank.data import demo
from rerank.data.trec import read_qrels, read_run
from rerank.evaluation.evaluate import evaluate
from rerank.experiments.train import train_folds
from rerank.models.tiny_bert import make_encoder
from rerank.runs.table import compare_files


@pytest.fixture
def shortened(monkeypatch):
    def shorten(**training):
        whole = demo_command._config

        def config(*arguments):
            made = whole(*arguments)
            return replace(made, training=replace(made.training, **training))

        monkeypatch.setattr(demo_command, "_config", config)

    return shorten


def test_from_nothing_to_the_table_and_at_once_again(tmp_path, monkeypatch, capsys, shortened):
    shortened(epochs=1, lists_per_epoch=4)
    monkeypatch.setattr(demo, "TOWNS", 15)
    monkeypatch.chdir(tmp_path)
    main(["demo"])
    table = capsys.readouterr().out
    assert "over 5 folds, 15 queries" in table
    assert all(f"\n{name}" in table for name in ("bm25", "hinge", "smoothi"))
    main(["demo"])
    again = capsys.readouterr()
    assert again.out == table
    assert "remove the folder to make them again" in again.err


def test_the_re_ranker_beats_bm25_because_of_what_it_learned(tmp_path, shortened):
    shortened(epochs=4)
    demo.make_collection(tmp_path / "towns")
    lines = (tmp_path / "towns" / "corpus.jsonl").read_text().splitlines()
    make_encoder(tmp_path / "encoder", lines)
    config = demo_command._config(
        tmp_path / "runs", tmp_path / "towns", tmp_path / "encoder", demo_command.LOSSES["smoothi"]
    )
    folder = train_folds(config, "3")
    run, bm25 = read_run(folder.fold("3").test_run), read_run(tmp_path / "runs" / "towns" / "bm25.run")
    qrels = {q: judged for q, judged in read_qrels(tmp_path / "runs" / "towns" / "qrels.txt").items() if q in run}
    ours, theirs = (sum(evaluate(qrels, r, ["nDCG@10"])["nDCG@10"].values()) / len(qrels) for r in (run, bm25))
    assert ours > theirs + 0.2
    assert compare_files([folder.fold("3").test_run], fold="3").evaluation.averaged_over == "16 queries of fold 3"
