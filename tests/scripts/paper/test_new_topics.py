"""The scripts that compare queries like the judged ones with queries on new topics."""

import json
import re
import sys
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

import rerank
from rerank.data.types import Candidates
from rerank.pipelines.crossfit import CrossFitting
from rerank.pipelines.graph import prefix
from rerank.pipelines.stages.similar_queries import SimilarQueriesRanker
from scripts.paper import new_topics, transfer, votes
from scripts.paper.text_parts import Opened, grouped_interval, pack
from tests.support.small_collection import write_collection


@pytest.fixture
def pairs(here):
    """A collection of 20 queries: two and two share a word."""
    folder = write_collection(Path("pairs"), queries=20)
    queries = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    for number, query in enumerate(queries):
        query["text"] += f" pair{number // 2}"
    (folder / "queries.jsonl").write_text("".join(f"{json.dumps(query)}\n" for query in queries))
    return folder


def test_parts_by_text_have_both_queries_of_a_pair(pairs):
    opened = Opened.of(pairs, Path("fits"))
    groups = opened.groups()
    assert sorted(map(sorted, groups)) == sorted(sorted([f"q{n}", f"q{n + 1}"]) for n in range(0, 20, 2))
    parts = pack(groups)
    assert [len(part) for part in parts.values()] == [4] * 5
    assert all(any(set(group) <= set(part) for part in parts.values()) for group in groups)
    differences = {query_id: float(number // 2) for number, query_id in enumerate(opened.queries)}
    assert grouped_interval(dict.fromkeys(opened.queries, 0.5), groups) == (0.5, 0.5)
    assert grouped_interval(differences, [list(opened.queries)]) == (4.5, 4.5)


def test_new_topics_compares_random_parts_with_parts_by_text(pairs, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["new_topics.py", "pairs", "--encoder", "none", "--folder", "fits"])
    new_topics.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "pairs: 20 queries, 20 of them in groups of several; nDCG@20"
    rows = {line.split()[0]: line for line in lines if line}
    shape = r" +0\.\d+ +[+-]0\.\d+ +\d\.\d+ +0\.\d+ +[+-]0\.\d+ +\[.*\] +\d\.\d+"
    assert all(re.fullmatch(stage + shape, rows[stage]) for stage in ("neighbours", "nested"))
    assert lines[-1].startswith("pairs       0.")
    monkeypatch.setattr(CrossFitting, "_fit", None)  # what is in the folder is not fitted again
    new_topics.main()
    assert capsys.readouterr().out.splitlines() == lines


def test_votes_are_compared_on_both_ways_to_cut(pairs, monkeypatch, capsys):
    words = ["pairs", "--encoder", "encoder", "--folder", "fits", "--sets", "2"]
    monkeypatch.setattr(sys, "argv", ["votes.py", *words])
    votes.main()
    rows = [
        line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(("vote", "cos", "squared"))
    ]
    assert [row[0] for row in rows] == ["vote", "cos4", "cos8", "cos12", "cos16", "squared"]
    assert all(
        len(row) == 9 and fmean(map(float, row[3:5])) == pytest.approx(float(row[1]), abs=1e-4) for row in rows[1:]
    )


@pytest.mark.parametrize(("name", "expected"), [("cos4", 0.8**4), ("cos8", 0.8**8), ("squared", (0.4 / 0.6) ** 2)])
def test_each_stage_of_the_comparison_votes_in_its_own_way(name, expected):
    judged = np.array([[0.8, 0.6], [0.0, 1.0]])
    ranker = SimilarQueriesRanker(votes.votes_of("encoder")[name], None, judged, [["d1"], ["d2"]], 1.0)
    found = Candidates("q", ("d1", "d2"), (0, 0), (2.0, 1.0))
    assert ranker.votes(found, np.array([1.0, 0.0])) == pytest.approx([expected, 0.0])


def test_a_borrowed_cross_encoder_scores_its_candidates_once():
    """No stage below it learns, so its ranking is the same whatever part is held out."""
    pipeline = rerank.Pipeline(transfer.stages_with("checkpoint", "encoder", 20))
    assert pipeline.answer == "combined"
    assert pipeline.stages["combined"].of[-1] == "borrowed"
    under = prefix(pipeline.stages, "borrowed")
    assert list(under) == ["bm25", "dense", "feedback", "fused", "late", "neighbours", "borrowed"]
    assert {stage.learns for stage in under.values()} == {"nothing"}
