"""Fusion against loops over its definition, its two ends, and what may not choose a weight."""

import random
import re
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.data.folds import official_folds, write_folds
from rerank.data.trec import ranked, write_qrels, write_run
from rerank.data.types import Qrels, Run
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.fusion import GRID, fuse, tune_weight
from tests.support.small_collection import failed

QUERIES = [f"q{i}" for i in range(30)]
FOLDS = official_folds([(str(i + 1), QUERIES[i::3]) for i in range(3)])
QRELS: Qrels = {q: {f"d{i:02}": int(i < 3) for i in range(20)} for q in QUERIES}


def drawn(seed: int, skill: float, documents: int = 20) -> Run:
    draw = random.Random(seed)
    return {q: {d: draw.gauss(0, 1) + skill * QRELS[q].get(d, 0) for d in list(QRELS[q])[:documents]} for q in QUERIES}


def slow(model: dict[str, float], first: dict[str, float], weight: float) -> list[str]:
    scores = {}
    for doc_id in {*model, *first}:
        mixed = 0.0
        for side, share in ((model, weight), (first, 1 - weight)):
            low, high = min(side.values()), max(side.values())
            mixed += share * (side.get(doc_id, low) - low) / (high - low)
        scores[doc_id] = (mixed, first.get(doc_id, min(first.values())), doc_id)
    return sorted(scores, key=lambda doc_id: scores[doc_id], reverse=True)


@pytest.mark.parametrize("weight", [0.0, 0.05, 0.35, 0.8, 1.0])
def test_mixture_is_that_of_a_slow_loop(weight: float) -> None:
    draw = random.Random(1)
    for _ in range(20):  # multiples of 1/8, so that float32 scaling is exact enough and there are ties
        first = {f"d{i}": draw.randint(0, 16) / 8 for i in draw.sample(range(40), 30)}
        model = {f"d{i}": draw.randint(-8, 8) / 8 for i in draw.sample(range(40), 20)}
        first |= {"low": -1.0, "high": 3.0}  # the ranges are powers of two
        model |= {"low": 2.0, "high": -2.0}
        found = fuse({"q": model}, {"q": first}, {"q": weight})["q"]
        assert ranked(found) == slow(model, first, weight)
        assert sorted(found.values()) == list(range(1, len(found) + 1))


def test_the_ends_are_the_first_stage_and_the_model() -> None:
    first, model = drawn(1, 1.0), drawn(2, 2.0, documents=12)
    for weight, run in ((0.0, first), (1.0, model)):
        mixed = fuse(model, first, dict.fromkeys(QUERIES, weight))
        assert all(ranked(mixed[q])[: len(run[q]) - 1] == ranked(run[q])[:-1] for q in QUERIES)
        assert all(set(mixed[q]) == set(first[q]) for q in QUERIES)


def test_scores_that_float32_ties_after_scaling_keep_their_order() -> None:
    first = {"a": -1e7, "d": 8388607.0, "c": 8388607.5, "b": 8388608.0}
    assert ranked(fuse({}, {"q": first}, {"q": 0.0})["q"]) == ["b", "c", "d", "a"]


def test_a_side_that_says_nothing_leaves_the_other_alone() -> None:
    first = {"a": 1.0, "b": 3.0, "c": 2.0}
    for model in ({}, {"a": 5.0, "b": 5.0, "c": 5.0}, {"a": 5.0}):
        assert ranked(fuse({"q": model}, {"q": first}, {"q": 0.5})["q"]) == ["b", "c", "a"]
    assert ranked(fuse({"q": first}, {}, {"q": 0.5})["q"]) == ["b", "c", "a"]
    assert fuse({"q": first}, {}, {"other": 0.5}) == {}


def test_the_weight_is_the_best_of_the_grid_and_the_smallest_of_equals() -> None:
    first, model = drawn(3, 1.0), drawn(4, 1.0)
    means = {}
    for weight in GRID:
        values = evaluate(QRELS, fuse(model, first, dict.fromkeys(QUERIES, weight)), ["AP"])["AP"]
        means[weight] = sum(values.values()) / len(values)
    found = tune_weight(model, first, QRELS, "AP")
    assert means[found] == pytest.approx(max(means.values()))
    assert 0 < found < 1
    assert tune_weight(first, first, QRELS, "AP") == 0.0
    assert tune_weight(drawn(5, 30.0), first, QRELS, "R@20") == 0.0  # every weight has all 20


def test_noise_gets_no_weight_and_an_oracle_nearly_all() -> None:
    good = drawn(6, 3.0)
    assert tune_weight(drawn(7, 0.0), good, QRELS) <= 0.2
    assert tune_weight(good, drawn(8, 0.0), QRELS) >= 0.8


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """bm25.run, and the experiment `model`, which ranks validation queries well and test queries by chance."""
    monkeypatch.chdir(tmp_path)
    write_qrels("qrels.txt", QRELS)
    write_folds("folds.json", FOLDS)
    write_run("bm25.run", drawn(1, 1.0), "t")
    write_run("model/all.run", drawn(2, 0.0), "t")
    for fold in FOLDS:
        for part, skill in (("valid", 6.0), ("test", 0.0)):
            run = drawn(2, skill)
            write_run(f"model/fold{fold.name}/{part}.run", {q: run[q] for q in vars(fold)[part]}, "t")
    return tmp_path


def weights(text: str, name: str = "model + bm25") -> dict[str, float]:
    (line,) = (line for line in text.splitlines() if line.startswith(f"{name}: weight of"))
    return {fold: float(weight) for fold, weight in re.findall(r"fold (\S+) ([01]\.\d\d)", line)}


def evaluated(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    main(["eval", *words])
    return capsys.readouterr().out


def test_the_fused_run_is_below_the_run_with_a_note_on_its_weights(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = evaluated(capsys, "bm25.run", "model/all.run", "--fuse-with", "bm25.run", "--measures", "MAP")
    names = [re.split("  +", line)[0] for line in text.split("\n\n")[1].splitlines()]
    assert names == ["run", "bm25", "model", "model + bm25"]
    assert "weight of model by nDCG@20 on each fold's validation queries (its valid.run): fold 1 " in text
    expected = {}
    for fold in FOLDS:
        valid = {q: QRELS[q] for q in fold.valid}
        expected[fold.name] = tune_weight(drawn(2, 6.0), drawn(1, 1.0), valid)
    assert weights(text) == expected
    assert min(expected.values()) > 0.3  # validation scores choose, though the test scores are noise
    of_files = [f"model/fold{fold.name}/test.run" for fold in FOLDS]
    assert weights(evaluated(capsys, *of_files, "--fuse-with", "bm25.run")) == expected
    one = evaluated(capsys, "model/fold2/test.run", "--fuse-with", "bm25.run", "--fold", "2")
    assert weights(one) == {"2": expected["2"]}
    assert "\nbm25 " not in one


def test_judgments_of_a_test_query_do_not_choose_its_weight(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bm25.run", "model/all.run", "--fuse-with", "bm25.run", "--fuse-measure", "P@3"]
    before = evaluated(capsys, *words)
    # The queries that fold 1 tests: turned upside down. They validate fold 2, and train fold 3.
    turned = {q: {d: 1 - r if q in FOLDS[0].test else r for d, r in of.items()} for q, of in QRELS.items()}
    write_qrels("qrels.txt", turned)
    after = evaluated(capsys, *words)
    assert {fold: weights(after)[fold] for fold in "13"} == {fold: weights(before)[fold] for fold in "13"}
    assert weights(after)["2"] < weights(before)["2"]


def test_a_run_without_labels_gives_its_own_scores(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run("warm.run", drawn(9, 2.0), "t")
    text = evaluated(capsys, "bm25.run", "warm.run", "--fuse-with", "bm25.run")
    assert "(its own scores of them)" in text
    valid = [{q: QRELS[q] for q in fold.valid} for fold in FOLDS]
    assert list(weights(text, "warm + bm25").values()) == [
        tune_weight(drawn(9, 2.0), drawn(1, 1.0), one) for one in valid
    ]


def test_queries_missing_for_tuning_are_an_error_of_one_line(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["eval", "model/fold1/test.run", "--fuse-with", "bm25.run"]
    assert (
        "model: no query of fold 2, 3; expected a run of all 3 folds, or only the queries of one fold (`--fold 1`)"
        in failed(capsys, *words)
    )
    words += ["--fold", "1"]
    Path("model/fold1/valid.run").unlink()
    assert "fold1/valid.run either): 10 of the 10 validation queries of fold 1 are missing (q2, q5" in failed(
        capsys, *words
    )
    words = ["eval", "model/all.run", "--fuse-with", "bm25.run"]
    assert "model/fold1/valid.run: cannot be read" in failed(capsys, *words)
    run = drawn(2, 1.0)
    write_run("model/fold1/valid.run", {q: run[q] for q in FOLDS[0].valid[1:]}, "t")
    assert "valid.run: 1 of the 10 validation queries of fold 1 are missing (q2)" in failed(capsys, *words)
    write_run("part.run", {q: run[q] for q in FOLDS[0].test}, "t")
    line = failed(capsys, *words[:-1], "part.run", "--fold", "1")
    assert "part has none of the 10 judged validation queries of fold 1" in line
    Path("folds.json").unlink()
    assert "--fuse-with: expected --folds FILE, or folds.json near" in failed(capsys, *words)
    assert "nowhere.run" in failed(capsys, *words[:-1], "nowhere.run")
