"""`rerank eval --fuse-with`: a row for each run fused with the first stage, and what may not choose a weight."""

import re
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.data.folds import official_folds, write_folds
from rerank.data.trec import write_qrels, write_run
from rerank.evaluation.weights import tune_weights
from tests.support.random_runs import drawn, relevant_first_three
from tests.support.small_collection import failed

QRELS = relevant_first_three(30)
QUERIES = list(QRELS)
FOLDS = official_folds([(str(i + 1), QUERIES[i::3]) for i in range(3)])


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """bm25.run, and the experiment `model`, which ranks validation queries well and test queries by chance."""
    monkeypatch.chdir(tmp_path)
    write_qrels("qrels.txt", QRELS)
    write_folds("folds.json", FOLDS)
    write_run("bm25.run", drawn(QRELS, 1, 1.0), "t")
    write_run("model/all.run", drawn(QRELS, 2, 0.0), "t")
    for fold in FOLDS:
        for part, skill in (("valid", 6.0), ("test", 0.0)):
            run = drawn(QRELS, 2, skill)
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
        expected[fold.name] = tune_weights([drawn(QRELS, 1, 1.0), drawn(QRELS, 2, 6.0)], valid)[1]
    assert weights(text) == expected
    assert min(expected.values()) > 0.3  # validation scores choose, though the test scores are noise
    of_files = [f"model/fold{fold.name}/test.run" for fold in FOLDS]
    assert weights(evaluated(capsys, *of_files, "--fuse-with", "bm25.run")) == expected
    one = evaluated(capsys, "model/fold2/test.run", "--fuse-with", "bm25.run", "--fold", "2")
    assert weights(one) == {"2": expected["2"]}
    assert "\nbm25 " not in one


def test_a_run_without_labels_gives_its_own_scores(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run("warm.run", drawn(QRELS, 9, 2.0), "t")
    text = evaluated(capsys, "bm25.run", "warm.run", "--fuse-with", "bm25.run")
    assert "(its own scores of them)" in text
    valid = [{q: QRELS[q] for q in fold.valid} for fold in FOLDS]
    assert list(weights(text, "warm + bm25").values()) == [
        tune_weights([drawn(QRELS, 1, 1.0), drawn(QRELS, 9, 2.0)], one)[1] for one in valid
    ]


def test_queries_missing_for_tuning_are_an_error_of_one_line(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["eval", "model/fold1/test.run", "--fuse-with", "bm25.run"]
    assert (
        "model: no query of fold 2, 3; expected a run of all 3 folds, or only the queries of one fold (`--fold 1`)"
        in failed(capsys, *words)
    )
    words += ["--fold", "1"]
    Path("model/fold1/valid.run").unlink()
    line = failed(capsys, *words)
    assert "fold1/valid.run): has none of the 10 judged validation queries of fold 1 (q2, q5" in line
    words = ["eval", "model/all.run", "--fuse-with", "bm25.run"]
    assert "model/fold1/valid.run: cannot be read" in failed(capsys, *words)
    run = drawn(QRELS, 2, 1.0)
    write_run("part.run", {q: run[q] for q in FOLDS[0].test}, "t")
    line = failed(capsys, *words[:-1], "part.run", "--fold", "1")
    assert "part: has none of the 10 judged validation queries of fold 1" in line
    Path("folds.json").unlink()
    assert "--fuse-with: expected --folds FILE, or folds.json near" in failed(capsys, *words)
    assert "nowhere.run" in failed(capsys, *words[:-1], "nowhere.run")
