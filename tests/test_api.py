"""The Python API: the public names of `rerank`, each used as the documentation shows it."""

import ast
import math
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

import rerank
from rerank.config import CollectionSettings, EncoderSettings, TrainingSettings
from rerank.data.types import Fold
from tests.support.paths import ROOT
from tests.support.small_collection import SETTINGS

QRELS = {"q1": {"d1": 1, "d2": 0}, "q2": {"d1": 0, "d3": 2}, "q3": {"d2": 1}}
FIRST = {"q1": {"d1": 2.0, "d2": 1.0}, "q2": {"d1": 2.0, "d3": 1.0}, "q3": {"d1": 2.0, "d2": 1.0}}
SECOND = {"q1": {"d1": 2.0, "d2": 1.0}, "q2": {"d1": 1.0, "d3": 2.0}, "q3": {"d1": 1.0, "d2": 2.0}}


EVALUATING = f"""
import rerank, rerank.cli.retrieve, rerank.experiments.first_stage
rerank.evaluate({QRELS}, {FIRST}, ["nDCG@20", "AP"])
rerank.compare({{"a": {FIRST}, "b": {SECOND}}}, {QRELS}, ["nDCG@20"])
rerank.read_run
"""
LIGHT = {
    "import rerank": "torch numpy transformers accelerate scipy ir_measures rerank.config",
    "import rerank.cli.train, rerank.cli.score": "torch",
    "import rerank.data.letor, rerank.data.collections, rerank.retrieval": "torch pyarrow ir_datasets pyserini jnius",
    "import rerank.data.trec, rerank.data.candidates": "torch transformers scipy pandas",
    "import rerank.experiments.runs.run_files": "torch transformers scipy pandas",
    EVALUATING: "torch transformers accelerate",
}
"""Code, and the packages that it does not load, which take seconds or need Java."""


@pytest.mark.parametrize("code", LIGHT, ids=range(len(LIGHT)))
def test_what_needs_no_heavy_package_loads_none(code):
    words = [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"]
    loaded = set(subprocess.run(words, check=True, capture_output=True, text=True, cwd=ROOT).stdout.split())
    assert "rerank" in loaded
    assert not loaded & set(LIGHT[code].split())


def test_every_public_name_is_there():
    for name in rerank.__all__:
        assert getattr(rerank, name) is not None
        assert name in dir(rerank)
    assert rerank.losses.smoothi is rerank.losses.LOSSES["smoothi"]
    with pytest.raises(AttributeError, match="module 'rerank' has no attribute 'rank'"):
        rerank.rank  # noqa: B018


def test_type_checkers_and_python_import_the_same_objects():
    tree = ast.parse(Path(rerank.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed.keys() == set(rerank.__all__)
    for name, (module, attribute) in typed.items():
        assert getattr(rerank, name) is getattr(import_module(module), attribute)


def test_the_version_is_that_of_the_distribution():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project.get("version", rerank.__version__) == rerank.__version__


def test_a_string_stands_for_a_section_of_the_configuration():
    config = rerank.Config(collection="my-collection", loss="approx", encoder="my-encoder")
    assert config.collection == CollectionSettings(source="my-collection")
    assert config.encoder == EncoderSettings(name="my-encoder")
    assert config.loss.name == "approx"
    assert config == rerank.Config(
        collection=CollectionSettings(source="my-collection"), loss=config.loss, encoder=config.encoder
    )


def test_runs_and_qrels_are_read_and_written(tmp_path):
    rerank.write_run(SECOND, tmp_path / "a.run", "tag")
    assert rerank.read_run(tmp_path / "a.run") == SECOND
    rerank.write_qrels(QRELS, tmp_path / "qrels.txt")
    assert rerank.read_qrels(tmp_path / "qrels.txt") == QRELS


def test_evaluate():
    values = rerank.evaluate(QRELS, FIRST, ["nDCG@20", "AP"])
    assert values["AP"] == {"q1": 1.0, "q2": 0.5, "q3": 0.5}
    assert values["nDCG@20"]["q1"] == 1.0


def test_compare():
    comparison = rerank.compare({"bm25": FIRST, "ours": SECOND}, QRELS, ["nDCG@20", "AP"])
    assert isinstance(comparison, rerank.Comparison)
    assert "ours" in str(comparison)
    assert r"\begin{tabular}" in comparison.to_latex()
    folds = [Fold("1", (), (), ("q1", "q2")), Fold("2", (), (), ("q3",))]
    assert "folds" in str(rerank.compare({"bm25": FIRST, "ours": SECOND}, QRELS, ["AP"], folds=folds))


def test_fuse():
    assert list(rerank.fuse_scores([FIRST, SECOND], (0.0, 1.0))["q2"]) == ["d3", "d1"]
    assert list(rerank.fuse_scores([FIRST, SECOND], (1.0, 0.0))["q2"]) == ["d1", "d3"]


RUNS = [FIRST, SECOND]
TENSOR = torch.tensor([[1.0, 0.0]])
TAKING = {
    "evaluate": [
        lambda wrong: rerank.evaluate(wrong, FIRST),
        lambda wrong: rerank.evaluate(QRELS, wrong),
        lambda wrong: rerank.evaluate(QRELS, FIRST, wrong),
    ],
    "compare": [
        lambda wrong: rerank.compare(wrong, QRELS),
        lambda wrong: rerank.compare({"a": wrong}, QRELS),
        lambda wrong: rerank.compare({"a": FIRST}, wrong),
        lambda wrong: rerank.compare({"a": FIRST}, QRELS, wrong),
        lambda wrong: rerank.compare({"a": FIRST}, QRELS, folds=wrong),
        lambda wrong: rerank.compare({"a": FIRST}, QRELS, baseline=wrong),
        lambda wrong: rerank.compare({"a": FIRST}, QRELS, test=wrong),
    ],
    "fuse_ranks": [rerank.fuse_ranks, lambda wrong: rerank.fuse_ranks([wrong])],
    "fuse_scores": [
        lambda wrong: rerank.fuse_scores(wrong, (0.5, 0.5)),
        lambda wrong: rerank.fuse_scores(RUNS, wrong),
    ],
    "tune_weights": [
        lambda wrong: rerank.tune_weights(wrong, QRELS),
        lambda wrong: rerank.tune_weights(RUNS, wrong),
        lambda wrong: rerank.tune_weights(RUNS, QRELS, wrong),
    ],
    "files": [
        rerank.read_run,
        rerank.read_qrels,
        rerank.open_collection,
        rerank.Pipeline.load,
        rerank.Reranker.load,
        rerank.BiEncoder.load,
        lambda wrong: rerank.write_run(wrong, "new"),
        lambda wrong: rerank.write_run(FIRST, wrong),
        lambda wrong: rerank.write_run(FIRST, "new", wrong),
        lambda wrong: rerank.write_qrels(wrong, "new"),
        lambda wrong: rerank.write_qrels(QRELS, wrong),
        lambda wrong: rerank.fit("towns", out=wrong),
    ],
    "settings": [
        rerank.Pipeline,
        rerank.retrieve,
        rerank.train,
        rerank.losses.create,
        lambda wrong: rerank.train(rerank.Config(collection="towns", encoder="encoder"), wrong),
        lambda wrong: rerank.retrieve("towns", depth=wrong),
        lambda wrong: rerank.retrieve("towns", index=wrong),
        lambda wrong: rerank.retrieve("towns", threads=wrong),
        lambda wrong: rerank.retrieve("towns", language=wrong),
        lambda wrong: rerank.fit("towns", wrong, out="new"),
        lambda wrong: rerank.BiEncoder.load("encoder", device=wrong),
        lambda wrong: rerank.losses.smoothi(wrong, TENSOR),
        lambda wrong: rerank.losses.smoothi(TENSOR, wrong),
        lambda wrong: rerank.losses.smoothi(TENSOR, TENSOR, wrong),
    ],
}
"""Calls of each public function that takes runs, judgments, files or settings, with something else in a place."""


@pytest.mark.parametrize("function", TAKING)
@pytest.mark.parametrize(
    "wrong", [1.5, object(), [[1]], {"q": [1]}, np.ones((2, 2)), (None,)], ids=lambda one: type(one)
)
def test_public_functions_say_at_their_border_what_they_expected(here, function, wrong):
    for call in TAKING[function]:
        with pytest.raises((TypeError, ValueError, rerank.UserError), match=r"(^|: |\()(expected|got) "):
            call(wrong)
    assert not Path("new").exists()


def test_scores_and_names_beyond_what_files_hold_are_refused():
    with pytest.raises(
        rerank.UserError, match=r"^runs\[0\], query q, document d: expected a finite score \(float32\), got"
    ):
        rerank.fuse_ranks([{"q": {"d": 10**400}}])
    for score in (math.nan, math.inf, -1e39):
        runs = [{"q": {"d": 1.0}}, {"q": {"d": score}}]
        for fuse in (
            rerank.fuse_ranks,
            lambda runs: rerank.fuse_scores(runs, (0.5, 0.5)),
            lambda runs: rerank.tune_weights(runs, QRELS),
        ):
            with pytest.raises(rerank.UserError, match=r"^runs\[1\], query q, document d: expected a finite score"):
                fuse(runs)
    for read in (rerank.read_run, rerank.read_qrels, rerank.open_collection, rerank.Reranker.load):
        with pytest.raises(rerank.UserError, match="is not Unicode text at character 1; expected UTF-8"):
            read("a\ud83d")
        with pytest.raises(rerank.UserError, match="has a NUL character; expected the name"):
            read("a\0b")
    with pytest.raises(rerank.UserError, match=r"^device text: torch has no such device"):
        rerank.BiEncoder.load("encoder", device="text")


def test_losses_by_function_and_by_name():
    scores, labels = torch.randn(2, 5, requires_grad=True), torch.tensor([[1.0, 0, 0, 2, 0], [0, 1, 0, 0, 0]])
    rerank.losses.smoothi(scores, labels, metric="ndcg@3").mean().backward()
    assert scores.grad is not None
    approx = rerank.losses.create("approx", metric="ap", alpha=10)
    assert torch.equal(approx(scores, labels), rerank.losses.approx(scores, labels, metric="ap", alpha=10))
    with pytest.raises(ValueError, match="approx"):
        rerank.losses.create("aprox")
    with pytest.raises(ValueError, match="bins"):
        rerank.losses.create("approx", bins=3)


def test_retrieve_train_and_rerank(here):
    collection = rerank.open_collection("towns")
    run = rerank.retrieve(collection, depth=150)
    written = rerank.read_run("runs/towns/bm25.run")
    assert {query_id: list(scores) for query_id, scores in written.items()} == {q: list(run[q]) for q in written}
    assert written["q0"] == pytest.approx(run["q0"], abs=1e-5)

    settings = TrainingSettings(**tomllib.loads(SETTINGS)["training"])
    config = rerank.Config(collection="towns", encoder="encoder", loss="smoothi", training=settings)
    experiment = rerank.train(config, "1")
    reranker = rerank.Reranker.load(experiment.fold("1").checkpoint)

    tested = rerank.read_run(experiment.fold("1").test_run)
    for query_id, scores in reranker.rerank(run, collection, depth=100).items():
        if query_id in tested:
            assert scores == pytest.approx(tested[query_id], abs=1e-5)

    documents = ["good town", "", "bad town"]
    scores = reranker.score("town", documents)
    assert (scores.dtype, scores.shape) == (np.float32, (3,))
    (best,) = reranker.rank("town", documents, top_k=1)
    assert (best.score, best.text) == (scores.max(), documents[best.index])
