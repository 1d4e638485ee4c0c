"""`rerank fuse`: run files into one, by reciprocal rank, with given weights and with tuned ones."""

import json
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.data.folds import official_folds, write_folds
from rerank.data.runs import read_run
from rerank.data.trec import ranked, write_qrels, write_run
from rerank.evaluation.fusion import fuse_ranks, fuse_scores
from rerank.evaluation.weights import tune_weights
from rerank.utils.files import file_hash
from tests.support.random_runs import drawn, relevant_first_three
from tests.support.small_collection import failed

QRELS = relevant_first_three(12)
QUERIES = list(QRELS)
FOLDS = official_folds([(str(i + 1), QUERIES[i::3]) for i in range(3)])


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """a.run, b.run and c.run in runs/towns, with judgments and folds; what was written, by name."""
    monkeypatch.chdir(tmp_path)
    folder = Path("runs/towns")
    write_qrels(QRELS, folder / "qrels.txt")
    write_folds(folder / "folds.json", FOLDS)
    for seed, name in enumerate("abc"):
        write_run(drawn(QRELS, seed, 1.0 + seed), folder / f"{name}.run", name)
    return {name: read_run(folder / f"{name}.run") for name in "abc"}


A, B, C = (f"runs/towns/{name}.run" for name in "abc")


def orders(run):
    return {query_id: ranked(scores) for query_id, scores in run.items()}


def test_by_default_it_is_reciprocal_rank_with_a_manifest(runs, capsys):
    main(["fuse", A, B, C, "--out", "fused.run"])
    assert capsys.readouterr().out == "fused.run\n"
    assert orders(read_run("fused.run")) == orders(fuse_ranks(list(runs.values()), 60))
    assert Path("fused.run").read_text().splitlines()[0].endswith(" fused")
    facts = json.loads(Path("fused.run.json").read_text())
    sources = [{"run": file, "sha256": file_hash(Path(file))} for file in (A, B, C)]
    assert facts["fusion"] == {"method": "rrf", "k": 60.0, "runs": sources}
    assert facts["run"] == {"sha256": file_hash(Path("fused.run"))}


def test_a_run_that_takes_the_place_of_one_of_its_own_is_recorded_as_it_was(runs):
    before = file_hash(Path(A))
    main(["fuse", A, B, "--out", A])
    facts = json.loads(Path(f"{A}.json").read_text())
    assert facts["fusion"]["runs"][0] == {"run": A, "sha256": before}
    assert facts["run"]["sha256"] == file_hash(Path(A)) != before


def test_k_of_reciprocal_rank_is_a_flag(runs):
    main(["fuse", A, B, "--out", "fused.run", "--rrf-k", "1"])
    assert orders(read_run("fused.run")) == orders(fuse_ranks([runs["a"], runs["b"]], 1))
    assert json.loads(Path("fused.run.json").read_text())["fusion"]["k"] == 1.0


def test_a_run_that_is_fused_is_read_as_it_was_ranked(runs):
    """Sums that differ a little, and ties, keep their order in the file."""
    write_run({"q": {f"d{i:04}": float(i) for i in range(1000)}}, "x.run", "x")
    write_run({"q": {f"e{i:04}": float(i) for i in range(1000)}}, "y.run", "y")
    main(["fuse", "x.run", "y.run", "--out", "out.run"])
    found = ranked(read_run("out.run")["q"])
    assert found == [f"{name}{i:04}" for i in range(999, -1, -1) for name in "de"]


def test_given_weights_interpolate(runs):
    main(["fuse", A, B, "--method", "interpolate", "--weights", "0.3", "0.7", "--out", "fused.run"])
    assert orders(read_run("fused.run")) == orders(fuse_scores([runs["a"], runs["b"]], (0.3, 0.7)))
    assert json.loads(Path("fused.run.json").read_text())["fusion"]["weights"] == [0.3, 0.7]


def test_weights_are_tuned_by_fold_and_no_test_query_is_used(runs, capsys):
    words = ["fuse", A, B, "--method", "interpolate", "--measure", "P@3", "--out"]
    main([*words, "fused.run"])
    err = capsys.readouterr().err
    facts = json.loads(Path("fused.run.json").read_text())["fusion"]
    expected = {
        fold.name: tune_weights([runs["a"], runs["b"]], {q: QRELS[q] for q in fold.valid}, "P@3") for fold in FOLDS
    }
    assert facts["weights"] == {name: list(weights) for name, weights in expected.items()}
    assert facts["measure"] == "P@3"
    assert facts["folds"] == {
        "file": str(Path("runs/towns/folds.json").absolute()),
        "sha256": file_hash(Path("runs/towns/folds.json")),
    }
    a, b = expected["1"]
    assert f"weights by P@3 on the 4 judged validation queries of fold 1: {A} {a:.2f}, {B} {b:.2f}" in err
    of_query = {q: expected[fold.name] for fold in FOLDS for q in fold.test}
    assert orders(read_run("fused.run")) == orders(fuse_scores([runs["a"], runs["b"]], of_query))


def test_without_folds_the_judgments_are_those_of_validation_queries(runs, capsys):
    write_qrels({q: QRELS[q] for q in QUERIES[:4]}, "valid.txt")
    main(["fuse", A, B, C, "--method", "interpolate", "--qrels", "valid.txt", "--out", "fused.run"])
    weights = tune_weights(list(runs.values()), {q: QRELS[q] for q in QUERIES[:4]}, "nDCG@20")
    assert json.loads(Path("fused.run.json").read_text())["fusion"]["weights"] == list(weights)
    assert "on the 4 judged queries of valid.txt: " in capsys.readouterr().err
    assert orders(read_run("fused.run")) == orders(fuse_scores(list(runs.values()), weights))


def test_queries_that_a_run_lacks_are_named(runs, capsys):
    write_qrels({q: QRELS[q] for q in QUERIES[:4]}, "valid.txt")
    write_run({q: scores for q, scores in runs["b"].items() if q != QUERIES[0]}, Path("part.run"), "part")
    main(["fuse", A, "part.run", "--method", "interpolate", "--qrels", "valid.txt", "--out", "fused.run"])
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "lacks" in line]
    assert line == f"part.run: lacks 1 of the 4 queries of valid.txt ({QUERIES[0]}), which choose the weights too"


def test_queries_of_no_fold_have_the_mean_weights(runs, capsys):
    extra = {"new": {f"d{i:02}": float(i) for i in range(20)}}
    write_run(runs["a"] | extra, A, "a")
    write_run(runs["b"] | {"new": {f"d{i:02}": float(-i) for i in range(20)}}, B, "b")
    main(["fuse", A, B, "--method", "interpolate", "--out", "fused.run"])
    by_fold = json.loads(Path("fused.run.json").read_text())["fusion"]["weights"].values()
    a, b = (sum(weights) / len(weights) for weights in zip(*by_fold, strict=True))
    assert ranked(read_run("fused.run")["new"])[0] == ("d19" if a > b else "d00")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([A], "fuse: expected at least two runs to fuse, got 1"),
        ([A, "nowhere.run"], "nowhere.run: cannot be read: No such file"),
        ([A, B, "--weights", "1", "2"], "--weights, --qrels and --measure have no effect on --method rrf"),
        ([A, B, "--qrels", "qrels.txt"], "--weights, --qrels and --measure have no effect on --method rrf"),
        ([A, B, "--method", "interpolate", "--rrf-k", "9"], "--rrf-k 9: has no effect on --method interpolate"),
        ([A, B, "--rrf-k", "-1"], "--rrf-k"),
        ([A, B, "--method", "interpolate", "--weights", "1"], "--weights: expected a weight for each of the 2 runs"),
        ([A, B, "--method", "interpolate", "--weights", "1", "-1"], "--weights: expected weights of 0 or more"),
        ([A, B, "--method", "interpolate", "--measure", "nDGC"], "measures: unknown 'nDGC' (did you mean nDCG?)"),
        (["x.run", "y.run", "--method", "interpolate"], "no weights: expected --weights, --qrels FILE of validation"),
        ([A, B, "--out", "runs"], "--out runs: is a folder"),
        ([A, "part.run", "--method", "interpolate"], "part.run: has none of the 4 judged validation queries of fold"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(runs, capsys, words, expected):
    write_run({q: runs["a"][q] for q in FOLDS[0].test}, "part.run", "t")
    for name in ("x.run", "y.run"):
        write_run({"q0": {"d00": 1.0}}, name, "t")
    out = [] if "--out" in words else ["--out", "no.run"]
    assert expected in failed(capsys, "fuse", *words, *out)
    assert not Path("no.run").exists()
