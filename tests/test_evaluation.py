import gzip
import random
from pathlib import Path

import pytest
import pytrec_eval

from rerank.errors import UserError
from rerank.evaluation import MEASURES, evaluate, measure_label, measure_names, missing
from rerank.trec import read_qrels, read_run, write_run

ROBUST04 = Path(__file__).parents[2] / "shared" / "data" / "robust04"


def test_default_measures_are_the_papers() -> None:
    labels = ["P@1", "P@5", "P@10", "P@20", "MAP", "NDCG@1", "NDCG@5", "NDCG@10", "NDCG@20", "NDCG"]
    assert [measure_label(name) for name in MEASURES] == labels
    assert measure_names(labels) == list(MEASURES)


def test_names_of_trec_eval_and_of_the_table() -> None:
    assert measure_names(["ndcg_cut_20", "nDCG@20", "map_cut_5", "R@100", "rr", "rprec", "P_3"]) == [
        "ndcg_cut_20",
        "map_cut_5",
        "recall_100",
        "recip_rank",
        "Rprec",
        "P_3",
    ]


def test_all_unknown_measures_are_named_at_once() -> None:
    with pytest.raises(UserError) as error:
        measure_names(["NDGC@20", "map", "P_0", "P", "P@-1", "bogus@x"])
    line = str(error.value)
    assert line.startswith("measures: unknown 'NDGC@20' (did you mean NDCG@20?), 'P_0' (")
    assert all(f"'{bad}'" in line for bad in ("P", "P@-1", "bogus@x"))
    assert "'map'" not in line


def test_every_judged_query_has_a_value() -> None:
    qrels = {"relevant": {"a": 1}, "none": {"a": 0, "b": -1}, "lacking": {"a": 1}, "empty": {"a": 2}, "unjudged": {}}
    run = {"relevant": {"a": 1.0}, "none": {"a": 1.0}, "empty": {}, "elsewhere": {"a": 1.0}}
    values = evaluate(qrels, run, ["map", "NDCG@1"])
    expected = {"relevant": 1.0, "none": 0.0, "lacking": 0.0, "empty": 0.0}
    assert values == {"map": expected, "ndcg_cut_1": expected}
    assert missing(qrels, run) == ["lacking", "empty"]


def test_gain_is_the_grade() -> None:
    values = evaluate({"q": {"a": 1, "b": 3}}, {"q": {"a": 2.0, "b": 1.0}}, ["ndcg_cut_1"])
    assert values["ndcg_cut_1"]["q"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -1e39])
def test_a_score_that_is_no_number_is_named(score: float) -> None:
    with pytest.raises(UserError, match="query q, document b: expected a finite score"):
        evaluate({"q": {"a": 1}}, {"q": {"a": 1.0, "b": score}}, ["map"])


def test_run_and_judgments_of_different_collections() -> None:
    with pytest.raises(UserError, match="no query in common"):
        evaluate({"q": {"a": 1}, "p": {}}, {"p": {"a": 1.0}})


def test_awkward_files_have_the_values_of_pytrec_eval(tmp_path: Path) -> None:
    """Ties, any order of lines, ranks that lie, queries lacking on both sides, notation, CRLF, gzip, BOM, tabs."""
    draw = random.Random(0)
    rows, run, qrels = [], {}, {}
    for query in range(30):
        docs = draw.sample(range(60), 40)
        if query != 3:
            run[f"q{query}"] = {f"d{doc}": draw.choice([1.5, 2.25, -4e-5, draw.gauss(0, 1e3)]) for doc in docs}
        if query != 7:
            qrels[f"q{query}"] = {f"d{doc}": draw.choice([-2, -1, 0, 0, 1, 2]) for doc in draw.sample(range(60), 25)}
        for doc_id, score in run.get(f"q{query}", {}).items():
            text = draw.choice([repr(score), f"{score:.17e}", f"{score:+.20f}"])
            rows.append(f"q{query}\tQ0 {doc_id}  {draw.randint(0, 9)}\t{text} run\r\n")
    draw.shuffle(rows)
    (tmp_path / "a.run.gz").write_bytes(gzip.compress(("\ufeff" + "".join(rows)).encode()))
    write_run(tmp_path / "rewritten.run", run, "run")
    expected = pytrec_eval.RelevanceEvaluator(qrels, set(MEASURES)).evaluate(run)
    assert "q3" not in expected
    expected["q3"] = dict.fromkeys(MEASURES, 0.0)
    for name in ("a.run.gz", "rewritten.run"):
        values = evaluate(qrels, read_run(tmp_path / name))
        assert values == {measure: {q: expected[q][measure] for q in qrels} for measure in MEASURES}


@pytest.mark.skipif(not ROBUST04.exists(), reason="no ../shared/data/robust04")
def test_bm25_on_robust04() -> None:
    qrels = read_qrels(ROBUST04 / "qrels.robust2004.txt.gz")
    run = {}
    for fold in range(1, 6):
        run |= read_run(ROBUST04 / f"bm25.fold{fold}.run.gz")
    values = evaluate(qrels, run)
    means = {measure: round(sum(of.values()) / len(of), 4) for measure, of in values.items()}
    assert len(values["map"]) == 249
    assert "672" in run
    assert "672" not in values["map"]
    assert missing(qrels, run) == []
    truth = {"ndcg_cut_20": 0.4198, "map": 0.2241, "P_20": 0.3586, "ndcg": 0.4188}
    assert {measure: means[measure] for measure in truth} == truth
