"""The scripts in examples/ run, with small models and collections, and print what they promise."""

import runpy
import sys

import pytest

from rerank.data.runs import read_run
from rerank.losses import LABELS, LOSSES
from scripts.pages.blocks import blocks_of
from tests.support.paths import ROOT
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_cross_encoder

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture
def run_example(monkeypatch, capsys):
    """Runs an example with these arguments and gives what it prints."""

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        capsys.readouterr()
        runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_all_examples_are_tested_and_short():
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert len(EXAMPLES) == 6
    for example in EXAMPLES:
        assert example.stem in tested
        assert [block.kind for block in blocks_of(ROOT, example)] == ["shell"]  # which `scripts/docs --run` runs
        assert len(example.read_text(encoding="utf-8").splitlines()) <= 30


def test_rerank_texts(run_example, tmp_path):
    words = ["berlin", "inhabitants", "city", "museums", *WORDS]
    printed = run_example("rerank_texts.py", make_cross_encoder("bert", tmp_path, words))
    assert printed.count("document") == 2


def test_train_on_your_queries(run_example, here):
    assert "fold1" in run_example("train_on_your_queries.py", "towns", "encoder", 1)
    assert read_run("reranked.run").keys() == read_run("runs/towns/bm25.run").keys()


def test_evaluate_and_compare(run_example, trained):
    folder = trained / "runs" / "towns"
    runs = [folder / "smoothi" / "fold1" / "test.run", folder / "bm25.run"]
    printed = run_example("evaluate_and_compare.py", folder / "qrels.txt", *runs)
    assert "nDCG@20 is lowest for query q" in printed
    assert "bm25" in printed
    assert r"\begin{tabular}" in printed


def test_custom_loss(run_example, here):
    try:
        assert "squared_margin" in run_example("custom_loss.py", "towns", "encoder", 1)
    finally:
        del LOSSES["squared_margin"], LABELS["squared_margin"]


def test_losses_in_your_training_loop(run_example):
    first, *_, last = run_example("losses_in_your_training_loop.py").splitlines()
    assert float(last.split("=")[1]) < float(first.split("=")[1]) - 0.1


def test_fuse_with_bm25(run_example, trained, tmp_path):
    folder = trained / "runs" / "towns"
    files = [folder / "qrels.txt", folder / "bm25.run", folder / "smoothi" / "fold1" / "test.run"]
    printed = run_example("fuse_with_bm25.py", *files, tmp_path / "fused.run")
    assert printed.count("nDCG@20") == 5
    assert read_run(tmp_path / "fused.run")
