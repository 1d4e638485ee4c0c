"""The comparison of ways to score a long document, on a small collection."""

import json
import re
import runpy
import sys
from pathlib import Path

from rerank.cli.main import main
from rerank.data.trec import read_run
from tests.support.paths import ROOT
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_encoder

SCRIPT = ROOT / "scripts" / "paper" / "compare_passages.py"
PRETRAINING = ("--pretraining.steps", "1", "--pretraining.held-out", "4")


def table_of(printed):
    return {line[0]: line[1:] for line in (re.split(r"  +", line.strip()) for line in printed.splitlines())}


def test_rows_of_equal_cost_are_trained_once(here, monkeypatch, capsys):
    make_encoder("bert", Path("long"), [*WORDS, "good", "bad"], max_positions=60)
    rows = ["one", "max", "max, overlap", "short"]
    words = ["towns", "long", "--fold", "1", "--tokens", "20", "--passage", "13", "--overlap", "2", "--rows", *rows]
    words += ["--output", "compared", "--loss", "hinge", "--epochs", "1", "--training.lists-per-epoch", "2"]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *words])
    tables = []
    for _ in range(2):
        runpy.run_path(str(SCRIPT), run_name="__main__")
        printed = capsys.readouterr()
        tables.append(table_of(printed.out))
    assert tables[0] == tables[1]
    assert "epoch 1" not in printed.err
    assert list(tables[0]) == ["row", *rows, "BM25"]
    kept, cost = ({name: float(tables[0][name][place]) for name in rows} for place in (0, 1))
    assert kept["one"] > kept["max"] > kept["max, overlap"] > kept["short"]
    assert all(15 < cost[name] <= 20 for name in rows[:-1])  # one more token may be one more passage
    assert cost["short"] <= 13
    assert all(0 <= float(tables[0][name][2]) <= 1 for name in rows)
    settings = Path("compared/towns/max-overlap/config.toml").read_text()
    assert "passage_overlap = 2" in settings
    assert 'pooling = "max"' in settings


def test_rows_may_score_all_queries_without_training(here, monkeypatch, capsys):
    main(["pretrain", "--collection", "towns", "--encoder", "encoder", "--out", "trained", *PRETRAINING])
    words = ["towns", "trained", "--untrained", "--tokens", "40", "--passage", "20", "--output", "compared"]
    words += ["--title", "3", "--rows", "mean", "max", "max, title"]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *words])
    capsys.readouterr()
    runpy.run_path(str(SCRIPT), run_name="__main__")
    rows = table_of(capsys.readouterr().out)
    assert list(rows) == ["row", "mean", "max", "max, title", "BM25"]
    assert len({rows[name][2] for name in ("mean", "max")}) == 2
    (scored,) = Path("compared/towns").glob("untrained-max-title-*.run")
    assert read_run(scored).keys() == read_run("compared/towns/bm25.run").keys()
    settings = json.loads((scored.with_suffix("") / "config.json").read_text())["rerank"]
    assert (settings["pooling"], settings["title_tokens"], settings["passage_overlap"]) == ("max", 3, 0)
    assert "pretraining" in settings
    words[words.index("40")] = "30"
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert len(list(Path("compared/towns").glob("untrained-max-title-*.run"))) == 1
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *words])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert len(list(Path("compared/towns").glob("untrained-max-title-*.run"))) == 2
