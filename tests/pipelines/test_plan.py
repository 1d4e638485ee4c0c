"""What `fit` says before its first stage: how many fits it makes, and about how long they take."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import rerank
from rerank.config import TrainingSettings
from rerank.pipelines import fit as fitting
from rerank.pipelines import plan
from rerank.pipelines.stages import (
    BM25Stage,
    CrossEncoderStage,
    FusionStage,
    NeighboursStage,
    TrainedEncoderStage,
)
from rerank.training.estimate import Cost
from rerank.utils.progress import duration
from tests.pipelines.towns import STAGES

SMALL = TrainingSettings(epochs=1, lists_per_epoch=4, lr=1e-3)
CHEAP = {name: STAGES[name] for name in ("bm25", "dense", "feedback", "fused", "late")}
EXPENSIVE = {
    "bm25": BM25Stage(),
    "answer": CrossEncoderStage("bm25", "encoder", depth=6, training=SMALL),
    "trained": TrainedEncoderStage("bm25", "encoder", depth=6, lists_per_epoch=8),
    "both": FusionStage(("answer", "trained"), weights=(0.5, 0.5)),
}


@pytest.fixture
def says_all(monkeypatch):
    """A fit says how long it takes, however short that is."""
    monkeypatch.setattr(plan, "SECONDS_SAID", 0.0)


def said(caplog):
    """The number of fits and, by stage, the duration that the fit logged."""
    counts, times = (next(line for line in caplog.messages if re.search(form, line)) for form in (" fits", "about "))
    total, _, of_stages = times.partition(";")[0].partition(": ")
    return counts, total, dict(each.split(" ", 1) for each in of_stages.split(", "))


def test_a_fit_says_before_its_first_stage_how_long_each_takes(here, caplog, says_all):
    rerank.fit("towns", rerank.Pipeline(CHEAP), out="p")
    counts, total, stages = said(caplog)
    assert counts == "5 stages, 5 parts: 33 fits"
    assert re.fullmatch(r"about \d+ s", total)
    assert set(stages) == set(CHEAP)
    assert caplog.messages[0] == counts


def test_a_fit_says_that_the_training_of_a_cross_encoder_may_stop_early(here, caplog, says_all):
    rerank.fit("towns", rerank.Pipeline(EXPENSIVE), out="p")
    _, _, stages = said(caplog)
    assert set(stages) == set(EXPENSIVE)
    assert any(line.endswith("; less if a training stops early") for line in caplog.messages)


def test_stages_that_take_no_time_to_speak_of_are_not_listed(here, caplog, monkeypatch):
    monkeypatch.setattr(plan, "seconds_of", lambda fitting, fits: dict.fromkeys(fitting.stages, 6.0))
    rerank.fit("towns", rerank.Pipeline(bm25=BM25Stage(), neighbours=NeighboursStage("bm25", weight=1.0)), out="p")
    assert caplog.messages[0].startswith("2 stages, 5 parts: ")
    assert caplog.messages[1] == "about 12 s"


def test_what_is_measured_changes_nothing_of_the_fit(here, monkeypatch, says_all, caplog):
    rerank.fit("towns", rerank.Pipeline(EXPENSIVE), out="measured")
    here_before = set(Path().iterdir())
    monkeypatch.setattr(fitting, "say_plan", lambda *given: None)
    rerank.fit("towns", rerank.Pipeline(EXPENSIVE), out="plain")
    assert set(Path().iterdir()) - here_before == {Path("plain"), Path("pipeline-plain.lock")}
    for name in EXPENSIVE:
        assert Path(f"measured/runs/{name}.run").read_bytes() == Path(f"plain/runs/{name}.run").read_bytes()


def test_the_time_follows_what_is_measured(here, caplog, monkeypatch):
    cost = Cost(lists=4, list_seconds=2.0, validated=0, document_seconds=0.5)
    monkeypatch.setattr("rerank.training.estimate.measure", lambda *given: cost)
    monkeypatch.setattr("rerank.pipelines.vectors.timed_sample", lambda work, items: 8.0)
    stages = CHEAP | {"answer": replace(EXPENSIVE["answer"], of="late")}
    rerank.fit("towns", rerank.Pipeline(stages), out="p")
    _, _, said_of = said(caplog)
    documents = Path("towns/corpus.jsonl").read_text().splitlines()
    assert said_of["dense"] == duration(len(documents))  # eight are embedded at once
    training, ranking = 4 * 2.0 + 3 * 6 * 0.5, 3 * 6 * 0.5  # three queries validate, three others are ranked
    assert said_of["answer"] == duration(5 * (training + ranking))
