"""Budgets: the stages that a fit may choose, and the stage that answers a search in time."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import rerank
from rerank.cli.main import main
from rerank.pipelines.record import read_evidence
from rerank.pipelines.stages import QueryAdapterStage
from tests.pipelines.towns import QUERY, contents, pipeline
from tests.support.small_collection import failed

MS = {"bm25": 10.0, "dense": 20.0, "feedback": 30.0, "fused": 1e9, "late": 1.0, "adapter": 1.0}


@pytest.fixture
def timed(here, monkeypatch):
    """Stages that take so long, of which a fit chooses the last one that it may."""
    monkeypatch.setattr("rerank.pipelines.fit.times_of", lambda fitting, tested: MS)
    monkeypatch.setattr("rerank.pipelines.selection.choose", lambda values, costly: list(values)[-1])
    Path("p.toml").write_text(pipeline().to_toml())


def test_a_fit_chooses_among_the_stages_that_answer_in_time(timed, capsys):
    main(["fit", "towns", "--pipeline", "p.toml", "--out", "p", "--budget", "50ms"])
    assert "Chosen among the stages that answer within 50 ms." in capsys.readouterr().out
    evidence = read_evidence(Path("p"))
    assert (evidence["answer"], evidence["budget"]) == ("dense", 50.0)
    assert evidence["values"]["nested"] == evidence["values"]["dense"]
    assert [row["ms"] for row in evidence["stages"][:3]] == [10.0, 20.0, 60.0]
    said = failed(capsys, "fit", "towns", "--pipeline", "p.toml", "--out", "p", "--budget", "5ms")
    assert "--budget 5ms: no stage answers in time; the fastest, bm25, takes 10.0 ms" in said
    assert "expected milliseconds, such as 100ms" in failed(capsys, "fit", "towns", "--budget", "5")


def test_a_budget_chooses_among_fitted_stages_without_fitting_again(timed, monkeypatch, caplog):
    rerank.fit("towns", pipeline(), out="p")
    whole = contents(Path("p"))
    monkeypatch.setattr(QueryAdapterStage, "fit", lambda *given: 1 / 0)  # nothing is fitted
    fitted = rerank.fit("towns", pipeline(), out="p", budget=50.0)
    assert fitted.answer == rerank.Pipeline.load("p").answer == "dense"
    evidence = read_evidence(Path("p"))
    assert (evidence["answer"], evidence["budget"]) == ("dense", 50.0)
    assert evidence["values"]["nested"] == evidence["values"]["dense"]
    assert contents(Path("p")) == whole
    assert "is fitted again" not in caplog.text
    assert rerank.fit("towns", pipeline(), out="p").answer == "adapter"  # without a budget, as before
    with pytest.raises(SystemExit) as end:
        main(["verify", "p"])
    assert end.value.code == 0


def test_the_last_stage_that_ends_in_time_answers_a_search(timed, capsys):
    fitted = rerank.fit("towns", pipeline(), out="p")
    query = rerank.open_collection("towns").queries[QUERY]
    loaded = rerank.Pipeline.load("p")
    for budget, stage in ((0.0, "bm25"), (1e8, "feedback"), (None, "adapter")):
        hits = loaded.search(query, 5, budget)
        assert {list(hit.stages)[-1] for hit in hits} == {stage}
        assert {hit.doc_id: hit.score for hit in hits} == {hit.doc_id: hit.stages[stage][1] for hit in hits}
    assert {hit.doc_id: hit.score for hit in loaded.search(query)} == pytest.approx(
        {hit.doc_id: hit.score for hit in fitted.search(query)}  # which has encoded the query beside others
    )
    bare = rerank.Pipeline.of(replace(fitted.fitted, folder=Path()))  # as if `fit` had not made it
    bare.save("bare")
    said = failed(capsys, "serve", "bare", "--port", "0", "--budget", "5ms")
    assert "--budget 5ms: bare has no times of its stages; expected a folder of `rerank fit`" in said


def test_a_budget_decides_whether_a_trained_encoder_answers(timed, monkeypatch, capsys):
    monkeypatch.setattr("rerank.pipelines.fit.times_of", lambda fitting, tested: {"bm25": 1.0, "trained": 100.0})
    copied = []  # fine-tuning has tests of its own
    monkeypatch.setattr(
        "rerank.training.contrastive.fine_tune",
        lambda encoder, plan, folder, out: copied.append(shutil.copytree(encoder, out)),
    )
    others = ["dense", "feedback", "fused", "late", "neighbours", "similar", "adapter", "both", "combined"]
    words = ["fit", "towns", "--encoder", "encoder", "--train-encoder", "--without", *others, "--out", "p"]
    main([*words, "--budget", "50ms"])
    rows = {row["name"]: row for row in read_evidence(Path("p"))["stages"]}
    assert {name: (row["ms"], row["kept"]) for name, row in rows.items()} == {
        "bm25": (1.0, True),
        "trained": (101.0, False),
    }
    assert len(copied) == 5  # once a part
    main([*words, "--budget", "200ms"])  # the folder lacks it
    assert rerank.Pipeline.load("p").answer == "trained"
    fits = len(copied)
    main([*words, "--budget", "50ms"])  # of the stages in the folder
    assert rerank.Pipeline.load("p").answer == "bm25"
    assert len(copied) == fits
