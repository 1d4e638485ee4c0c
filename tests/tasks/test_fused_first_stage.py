"""A first stage of several runs: what is trained on, what is recorded, and what is refused."""

import json
import random
import shutil
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.data.collections import open_collection
from rerank.data.folds import read_folds
from rerank.data.trec import ranked, read_qrels, read_run, write_run
from rerank.evaluation.fusion import fuse_ranks, fuse_scores, tune_weights
from rerank.utils.files import file_hash
from tests.support.small_collection import SETTINGS, command, failed, in_a_copy

TOWNS = Path("runs/towns")
BM25, DENSE = "runs/towns/bm25.run", "dense.run"
TUNED = ["--first-stage.run", BM25, DENSE, "--first-stage.fusion", "interpolate"]


def write_dense(qrels, seed=1, file=DENSE):
    """A run that ranks the judged documents of a query, and three of others, with some skill."""
    draw = random.Random(seed)
    everything = [doc_id for judged in qrels.values() for doc_id in judged]
    run = {
        q: {d: draw.gauss(0, 1) + 1.5 * judged.get(d, 0) for d in (*judged, *draw.sample(everything, 3))}
        for q, judged in qrels.items()
    }
    write_run(file, run, "dense")


@pytest.fixture(scope="module")
def home(home, tmp_path_factory):
    """A copy of the collection with a second run, and an experiment on both with weights tuned by fold."""
    with in_a_copy(home, tmp_path_factory) as folder:
        write_dense(open_collection("towns").qrels)
        Path("towns.toml").write_text(SETTINGS.replace("[encoder]", "folds = 3\n[encoder]"))
        main(command(*TUNED, "--epochs", "1", "--name", "tuned"))
    return folder


def facts_of(experiment, fold):
    return json.loads((TOWNS / experiment / fold / "manifest.json").read_text())


def orders(run):
    return {query_id: ranked(scores) for query_id, scores in run.items()}


def fused_file(pattern):
    (file,) = TOWNS.glob(f"fused-{pattern}*.run")
    return file


def test_each_fold_has_the_weights_of_its_validation_queries(here, capsys):
    runs, qrels = [read_run(BM25), read_run(DENSE)], read_qrels(TOWNS / "qrels.txt")
    file = fused_file("interpolate=bm25+dense-")
    merged = orders(read_run(file))
    sources = [{"run": run, "sha256": file_hash(Path(run))} for run in (BM25, DENSE)]
    seen = set()
    for fold in read_folds(TOWNS / "folds.json"):
        weights = tune_weights(runs, {q: qrels[q] for q in fold.valid})
        first = facts_of("tuned", f"fold{fold.name}")["first_stage"]
        assert first == {
            "run": str(file),
            "sha256": file_hash(file),
            "fusion": {"method": "interpolate", "measure": "nDCG@20", "weights": list(weights), "runs": sources},
        }
        assert {q: merged[q] for q in fold.test} == orders(fuse_scores(runs, dict.fromkeys(fold.test, weights)))
        seen.add(weights)
    assert len(seen) > 1  # so that a run with the weights of another fold would show


def test_the_candidates_of_a_fold_are_those_of_its_weights(here):
    """Its test run has what its weights put into the first documents, and so has its validation run."""
    runs = [read_run(BM25), read_run(DENSE)]
    words = [*TUNED, "--depth", "2", "--epochs", "1", "--name", "short"]
    for fold in read_folds(TOWNS / "folds.json")[:2]:
        main(command(*words, "--fold", fold.name))
        weights = tuple(facts_of("short", f"fold{fold.name}")["first_stage"]["fusion"]["weights"])
        fused = fuse_scores(runs, weights)
        for part in ("valid", "test"):
            found = read_run(TOWNS / "short" / f"fold{fold.name}" / f"{part}.run")
            assert {q: set(scores) for q, scores in found.items()} == {
                q: set(ranked(fused[q])[:2]) for q in vars(fold)[part]
            }


def test_by_reciprocal_rank_there_is_one_run_and_no_judgment_is_read(here, capsys):
    main(["retrieve", "--config", "towns.toml", "--first-stage.run", BM25, DENSE])
    file = fused_file("rrf=bm25+dense-")
    assert capsys.readouterr().out.splitlines()[-1] == str(file)
    assert orders(read_run(file)) == orders(fuse_ranks([read_run(BM25), read_run(DENSE)]))
    text = Path("towns.toml").read_text() + f'[first_stage]\nrun = ["{BM25}", "{DENSE}"]\ndepth = 4\n'
    Path("fused.toml").write_text(text)
    main(["train", "--config", "fused.toml", "--fold", "1", "--epochs", "1", "--name", "rrf"])
    fusion = facts_of("rrf", "fold1")["first_stage"]["fusion"]
    assert (fusion["method"], fusion["k"], [one["run"] for one in fusion["runs"]]) == ("rrf", 60.0, [BM25, DENSE])
    assert facts_of("rrf", "fold1")["config"]["first_stage"]["run"] == [BM25, DENSE]
    main(["train", "--config", "runs/towns/rrf/config.toml", "--fold", "1"])  # what was kept means the same
    assert "already exists" in capsys.readouterr().err
    line = failed(capsys, "train", "--config", "runs/towns/rrf/config.toml", "--first-stage.run", DENSE, "--fold", "1")
    assert f"there first_stage.run = ['{BM25}', '{DENSE}']; here first_stage.run = {DENSE}" in line


def test_verify_and_report_know_the_runs(here, capsys):
    def verified():
        with pytest.raises(SystemExit) as ended:
            main(["verify", "runs/towns/tuned"])
        return ended.value.code, capsys.readouterr().out

    capsys.readouterr()
    assert verified()[0] == 0
    main(["report", "runs/towns", "--out", "report.html"])
    page = Path("report.html").read_text()
    assert fused_file("interpolate=").name in page
    assert "Most helped" in page
    text = Path(DENSE).read_text()
    Path(DENSE).write_text(text.replace(" dense\n", " other\n", 1))
    code, out = verified()
    assert code == 1
    assert "dense.run: expected SHA-256" in out
    Path(DENSE).unlink()
    code, out = verified()
    assert code == 0
    assert "Missing, so not checked: first_stage: dense.run (tuned/fold1, " in out
    file = fused_file("interpolate=")
    file.write_bytes(file.read_bytes()[:-1])
    code, out = verified()
    assert code == 1
    assert f"{file.name}: expected SHA-256" in out


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda: write_dense(open_collection("towns").qrels, 2), "dense.run: changed since the runs were fused into"),
        (lambda: edit(fused_file("interpolate=")), "runs/towns: changed since it was fused: fused-interpolate="),
        (lambda: turn_judgments(), ": fused with other judgments than those of now; remove"),
        (lambda: edit_weights(), "fold 2: expected a weight for each of the 2 runs, got 1; remove it and fused-"),
        (lambda: fused_file("interpolate=").with_suffix(".json").write_text("{"), ".json: not JSON"),
        (lambda: fused_file("interpolate=").with_suffix(".json").unlink(), ".json: cannot be read: No such file"),
    ],
)
def test_what_was_changed_is_refused(here, capsys, change, expected):
    shutil.rmtree(TOWNS / "tuned" / "fold2")
    change()
    assert expected in failed(capsys, *command(*TUNED, "--epochs", "1", "--name", "tuned", "--fold", "2"))


def edit(file):
    file.write_bytes(file.read_bytes().replace(b" 1 ", b" 2 ", 1))


def edit_weights():
    file = fused_file("interpolate=").with_suffix(".json")
    record = json.loads(file.read_text())
    record["weights"]["2"] = [1.0]
    file.write_text(json.dumps(record))


def turn_judgments():
    file = Path("towns/qrels/test.tsv")
    lines = [line.split("\t") for line in file.read_text().splitlines()[1:]]
    turned = [f"{q}\t{d}\t{1 - int(grade)}" for q, d, grade in lines]
    file.write_text("\n".join(["query-id\tcorpus-id\tscore", *turned]) + "\n")


def test_the_final_model_is_tuned_on_its_validation_queries(here):
    main(command(*TUNED, "--epochs", "1", "--name", "tuned", "--fold", "final"))
    facts, qrels = facts_of("tuned", "final"), read_qrels(TOWNS / "qrels.txt")
    valid = {q: qrels[q] for q in facts["fold"]["valid"]}
    weights = tune_weights([read_run(BM25), read_run(DENSE)], valid)
    assert facts["first_stage"]["fusion"]["weights"] == list(weights)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--first-stage.run", BM25, "nowhere.run"], "--first-stage.run nowhere.run: no such file"),
        (["--first-stage.run", BM25, BM25], f"--first-stage.run: {BM25}: given twice; expected each run once"),
        (["--first-stage.run", BM25, "other.run"], f"{BM25}: has no query in common with the other runs"),
        (
            ["--first-stage.fusion", "interpolate"],
            "--first-stage.fusion interpolate: expected several runs in --first-stage.run, got 0",
        ),
        (["--first-stage.run"], "--first-stage.run requires at least 1 element"),
    ],
)
def test_bad_input_is_one_line(here, capsys, words, expected):
    write_run("other.run", {"x": {"d0-0": 1.0}}, "t")
    assert expected in failed(capsys, *command(*words, "--name", "other"))


def test_distillation_refuses_weights_that_differ_by_fold(here, capsys):
    line = failed(capsys, "distill", "t", "--config", "towns.toml", *TUNED)
    assert "--first-stage.fusion interpolate: the teachers score once, and its weights differ by fold" in line
