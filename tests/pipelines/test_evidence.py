"""The evidence of a fit: gains on new topics, what taught, what few judgments cannot show; in table, page and JSON."""

import json
import math
import random
from collections import Counter
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import pytest

import rerank
from rerank.cli.main import main
from rerank.data.folds import make_folds
from rerank.evaluation.significance import bootstrap_intervals, mean_and_error, paired_test
from rerank.pipelines.crossfit import CrossFitting
from rerank.pipelines.record import read_evidence
from rerank.pipelines.stages import BM25Stage, SimilarQueriesStage, TrainedEncoderStage
from rerank.retrieval.words import find_words
from tests.support.small_collection import failed, judge_only, write_qrels
from tests.support.small_world import WORDS

FOLDER = Path("p")
FAR = "as to be expected for new topics"


@pytest.fixture
def topics(here):
    """The collection with queries of several words, some of which they share."""
    some = random.Random(0)
    queries = [json.loads(line) for line in Path("towns/queries.jsonl").read_text().splitlines()]
    for query in queries:
        query["text"] = " ".join([query["text"], *some.choices(WORDS[:12], k=some.randint(1, 4))])
    Path("towns/queries.jsonl").write_text("".join(f"{json.dumps(query)}\n" for query in queries))
    return {query["_id"]: query["text"] for query in queries}


def least_alike(queries, parts):
    """The third of the queries whose largest tf-idf cosine with a query of another part is least."""
    words = {q: Counter(word.term for word in find_words(text)) for q, text in queries.items()}
    among = Counter(word for counts in words.values() for word in counts)

    def vector(query_id):
        items = words[query_id].items()
        return {word: (1 + math.log(n)) * math.log(1 + len(queries) / among[word]) for word, n in items}

    def cosine(one, other):
        product = sum(value * other.get(word, 0.0) for word, value in one.items())
        return product / math.hypot(*one.values()) / math.hypot(*other.values())

    likeness = {}
    for part in parts:
        others = [vector(q) for q in queries if q not in part]
        likeness |= {q: max(cosine(vector(q), other) for other in others) for q in part}
    return sorted(likeness, key=likeness.get)[: len(queries) // 3]


def test_far_is_the_gain_on_the_third_of_the_queries_least_like_any_of_another_part(topics):
    rerank.fit("towns", encoder="none", out=FOLDER)
    evidence = read_evidence(FOLDER)
    far = least_alike(topics, [fold.test for fold in make_folds(topics, 5)])
    values, (first, last) = evidence["values"], evidence["stages"]
    assert [first[key] for key in ("gain", "p", "far", "far_low", "far_high")] == [None] * 5
    for row, own in ((last, values["neighbours"]), (evidence["nested"], values["nested"])):
        gains = {query_id: own[query_id] - values["bm25"][query_id] for query_id in own}
        of_far = [gain for query_id, gain in gains.items() if query_id in far]
        assert any(of_far)
        assert row["gain"] == pytest.approx(fmean(gains.values()))
        assert row["p"] == pytest.approx(paired_test(list(gains.values()), [0.0] * len(gains)))
        assert row["far"] == pytest.approx(fmean(of_far))
        assert (row["low"], row["high"]) == pytest.approx(bootstrap_intervals([list(gains.values())])[0])
        assert (row["far_low"], row["far_high"]) == pytest.approx(bootstrap_intervals([of_far])[0])


def test_table_and_page_show_far_gains_and_how_many_queries_taught_a_part(topics, capsys):
    main(["fit", "towns", "--encoder", "none", "--out", "p"])
    out, err = capsys.readouterr()
    evidence = read_evidence(FOLDER)
    lines = [line for line in out.splitlines() if line.startswith(("stage", "neighbours", "nested"))]
    assert max(map(len, lines)) <= 120
    assert lines[3].split() == ["stage", "far", "95", "%", "interval", "ms", "trained", "on"]
    rows = evidence["stages"][1], evidence["nested"]
    for row, gains, others in zip(rows, lines[1:3], lines[4:6], strict=True):
        assert f"  {row['gain']:+.4f}  [{row['low']:+.4f}, {row['high']:+.4f}]  " in gains
        assert f"  {row['far']:+.4f}  [{row['far_low']:+.4f}, {row['far_high']:+.4f}]" in others
    assert {row["name"]: row["trained_on"] for row in evidence["stages"]} == {"bm25": 0, "neighbours": 12}
    assert "Parts are drawn at random: the means hold for queries like the judged ones." in out
    assert f"least similar to the training queries, {FAR}. p is not corrected for" in out
    error = mean_and_error([evidence["values"]["neighbours"][q] - evidence["values"]["bm25"][q] for q in topics])[1]
    said = f"3 queries a part: differences below {1.96 * error:.1g} cannot be told from chance"
    assert err.splitlines()[-1] == said
    main(["report", "p"])
    page = Path("p-report.html").read_text()
    for text in (FAR, said, f"<td>{evidence['nested']['far']:+.4f}</td>", "<td>12</td>"):
        assert text in page
    for flag, value in (("--measure", "AP"), ("--qrels", "q.txt"), ("--collection", "towns")):
        line = failed(capsys, "report", "p", flag, value)
        assert f"{flag} {value}: has no effect, as the folder p has its own; leave it out" in line
    assert "p: is a folder; expected only this folder" in failed(capsys, "report", "p", "runs/towns")


def test_a_published_split_says_that_its_parts_are_not_drawn(topics, capsys):
    write_qrels(range(5, 15), Path("towns/qrels/train.tsv"))
    write_qrels(range(5), Path("towns/qrels/test.tsv"))
    main(["fit", "towns", "--encoder", "none", "--out", "p"])
    out, err = capsys.readouterr()
    assert "Parts are the folds of the collection" in out
    assert "Parts are drawn" not in out
    assert err.splitlines()[-1].startswith("5 test queries: ")
    assert read_evidence(FOLDER)["stages"][1]["trained_on"] == 10


@pytest.mark.parametrize("judged, said", [(0, "no judged queries"), (5, "5 judged queries")])
def test_without_judgments_the_last_line_says_what_is_unknown(judged, said, topics, capsys):
    judge_only(Path("towns"), judged)
    main(["fit", "towns", "--encoder", "none", "--out", "p"])
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == f"{said}: the gains of the stages, and the best stage, are unknown; expected 6 or more"
    assert {row["far"] for row in read_evidence(FOLDER)["stages"]} == {None}


def test_stages_that_rank_alike_are_not_told_apart(topics, capsys):
    write_qrels(range(9), Path("towns/qrels/test.tsv"), relevant=())
    main(["fit", "towns", "--encoder", "none", "--out", "p"])
    assert capsys.readouterr().err.splitlines()[-1] == "2 queries a part: no stage differs from the stages below it"


def test_a_trained_encoder_ranks_validation_queries_above_stages_that_these_did_not_teach(tmp_path):
    """Else it would seem ahead of these stages, whose own values are of fits without the validation queries."""
    asked = []

    class Fitting(CrossFitting):
        def ranker(self, name, without=frozenset()):
            asked.append((name, without))
            return SimpleNamespace(rank=lambda queries, runs: {query_id: {"d": 1.0} for query_id in queries})

    learned = {"similar": SimilarQueriesStage("bm25"), "trained": TrainedEncoderStage("similar")}
    parts = {name: (f"q{name}",) for name in "123"}
    fitting = Fitting({"bm25": BM25Stage(), **learned}, None, parts, {f"q{name}": "words" for name in "123"}, tmp_path)
    fitting.run("trained", "2", frozenset("1"))
    assert [fit for fit in asked if fit[0] != "bm25"] == [("similar", frozenset("12")), ("trained", frozenset("1"))]
    fitting.run("trained", "1", frozenset("1"))
    assert asked[-2:] == [("similar", frozenset("1")), ("trained", frozenset("1"))]
