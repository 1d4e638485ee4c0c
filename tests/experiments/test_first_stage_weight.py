"""`--encoder.first-stage-weight`: the first stage's scores are added in training, testing, scoring and searching."""

import json
from pathlib import Path

import numpy as np
import pytest

import rerank
from rerank.cli.main import main
from rerank.config import Config, FirstStageSettings
from rerank.data.collections import open_collection
from rerank.data.runs import read_run
from rerank.data.trec import ranked, write_run
from rerank.pipelines.open import open_pipeline
from tests.support.small_collection import command, failed, in_a_copy

WEIGHT = 0.5
FOLD = Path("runs/towns/added/fold1")
CHECKPOINT = FOLD / "checkpoint"
BM25 = Path("runs/towns/bm25.run")
DEPTH = 5


def train(name, *flags):
    main(command("--fold", "1", "--name", name, "--first-stage.depth", str(DEPTH), *flags))


@pytest.fixture(scope="module")
def home(home, tmp_path_factory):
    """A copy of the collection with a trained fold."""
    with in_a_copy(home, tmp_path_factory) as folder:
        train("added", "--encoder.first-stage-weight", str(WEIGHT))
    return folder


def expected_of(model, first_stage, query_ids):
    """The model's own scores of the first documents, and 0.5 times the first stage's as z-scores, query by query."""
    collection = open_collection("towns")
    run = {}
    for query_id in query_ids:
        doc_ids = ranked(first_stage[query_id])[:DEPTH]
        texts = [document.text for document in collection.get(doc_ids)]
        first = np.array([first_stage[query_id][doc_id] for doc_id in doc_ids])
        own = model.score(collection.queries[query_id], texts)
        added = (first - first.mean()) / first.std()
        run[query_id] = dict(zip(doc_ids, (own + WEIGHT * added).tolist(), strict=True))
    return run


def assert_same(found, expected, tolerance=2e-5):
    assert found.keys() == expected.keys()
    for query_id, scores in expected.items():
        assert found[query_id] == pytest.approx(scores, abs=tolerance)


def test_a_document_has_the_sum_of_both_scores(here):
    model = rerank.Reranker.load(CHECKPOINT, device="cpu")
    for part in ("valid", "test"):
        run = read_run(FOLD / f"{part}.run")
        assert_same(run, expected_of(model, read_run(BM25), run))


def test_the_model_learns_what_the_first_stage_misses(here):
    train("alone")
    ours, alone = (Path(f"runs/towns/{name}/fold1") for name in ("added", "alone"))
    logs = [json.loads((fold / "log.jsonl").read_text().splitlines()[0]) for fold in (ours, alone)]
    assert logs[0]["loss"] != logs[1]["loss"]
    weights = [(fold / "checkpoint" / "model.safetensors").read_bytes() for fold in (ours, alone)]
    assert weights[0] != weights[1]
    saved = [json.loads((fold / "checkpoint" / "config.json").read_text())["rerank"] for fold in (ours, alone)]
    assert saved[0]["first_stage_weight"] == WEIGHT
    assert "first_stage_weight" not in saved[1]
    assert "plus 0.5 times" in (ours / "checkpoint" / "README.md").read_text()
    assert "First stage" not in (alone / "checkpoint" / "README.md").read_text()


def test_a_model_that_goes_on_training_without_it_forgets_it(here):
    train("again", "--encoder", str(CHECKPOINT), "--epochs", "1")
    saved = json.loads(Path("runs/towns/again/fold1/checkpoint/config.json").read_text())["rerank"]
    assert "first_stage_weight" not in saved


def test_the_first_stage_may_be_another_run(here, capsys):
    bm25 = read_run(BM25)
    write_run({q: {d: -s for d, s in scores.items()} for q, scores in bm25.items()}, Path("other.run"), "other")
    train("other", "--encoder.first-stage-weight", "1000", "--first-stage.run", "other.run")
    run, other = read_run(Path("runs/towns/other/fold1/test.run")), read_run(Path("other.run"))
    for query_id, scores in run.items():
        assert ranked(scores) == ranked(other[query_id])[:DEPTH]
    checkpoint = Path("runs/towns/other/fold1/checkpoint")
    assert json.loads((checkpoint / "config.json").read_text())["rerank"]["first_stage"] == "other.run"
    assert "the scores of the first stage (other.run)" in (checkpoint / "README.md").read_text()
    for searched, told in (
        (checkpoint, ["trained to add the scores of other.run; a search adds BM25's"]),
        (CHECKPOINT, []),
    ):
        capsys.readouterr()
        main(["search", str(searched), "amber0", "--collection", "towns"])
        lines = [line for line in capsys.readouterr().err.splitlines() if "a search adds" in line]
        assert [line[len("this model was ") :].split(", which")[0] for line in lines] == told


def test_score_adds_the_scores_of_the_run_that_it_re_ranks(here):
    main(["score", str(CHECKPOINT), str(BM25), "--first-stage.depth", str(DEPTH), "--out", "scored.run"])
    found, test = read_run(Path("scored.run")), read_run(FOLD / "test.run")
    assert_same({query_id: found[query_id] for query_id in test}, test)
    model, first = rerank.Reranker.load(CHECKPOINT, device="cpu"), read_run(BM25)
    assert_same(found, expected_of(model, first, found))
    assert_same(model.rerank(first, open_collection("towns"), DEPTH), found)


def test_python_adds_the_scores_that_it_is_given(here, capsys):
    model = rerank.Reranker.load(CHECKPOINT, device="cpu")
    assert "this model adds first-stage scores, with weight 0.5" in capsys.readouterr().err
    texts, given = ["good wood", "bad", "good"], [7.0, 30.0, 5.0]
    own, added = model.score("good", texts), WEIGHT * (np.array(given) - np.mean(given)) / np.std(given)
    expected = own + added
    assert model.score("good", texts, given) == pytest.approx(expected, abs=1e-6)
    order = np.argsort(-expected).tolist()
    assert [found.index for found in model.rank("good", texts, first_scores=given)] == order
    passages = model.rank_passages("good", texts, first_scores=given)
    assert [found.index for found in passages] == order
    assert [found.score for found in passages] == pytest.approx(expected[order], abs=1e-6)
    assert model.score("good", texts, [3.0, 3.0, 3.0]) == pytest.approx(own)
    with pytest.raises(ValueError, match="first_scores: got 2 for 3 documents"):
        model.score("good", texts, given[:2])


def test_a_search_shows_the_sum(here):
    model = rerank.Reranker.load(CHECKPOINT, device="cpu")
    config = Config(collection="towns", first_stage=FirstStageSettings(depth=20))
    hits = open_pipeline(str(CHECKPOINT), config).search("amber0 good", top=20)
    texts = [document.text for document in open_collection("towns").get([hit.doc_id for hit in hits])]
    scores = model.score("amber0 good", texts, [hit.stages["bm25"][1] for hit in hits])
    assert len(hits) > 3
    assert [hit.score for hit in hits] == pytest.approx(scores, abs=2e-5)
    assert sorted(scores, reverse=True) == list(scores)


def test_lists_without_first_stage_scores_are_refused(here, capsys):
    Path("lists.jsonl").write_text('{"query_id": "q0", "doc_ids": ["d0-0", "d0-1"], "labels": [1, 0]}\n')
    weight = ["--encoder.first-stage-weight", "1"]
    said = failed(capsys, *command("--fold", "1", "--training.lists", "lists.jsonl", *weight))
    assert "--encoder.first-stage-weight 1: training lists have no first-stage scores" in said
    said = failed(capsys, "distill", str(CHECKPOINT), "--collection", "towns", "--fold", "1", *weight)
    assert "--encoder.first-stage-weight 1: training lists have no first-stage scores" in said
    said = failed(capsys, *command("--fold", "1", "--encoder.first-stage-weight", "-1"))
    assert "--encoder.first-stage-weight" in said
