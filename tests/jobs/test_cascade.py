"""`rerank score A --then B`: what is in the run, what each stage cost and gained, and what is refused."""

import json
import re
import shutil
from pathlib import Path
from statistics import fmean

import pytest

from rerank.cli.main import main
from rerank.data.trec import ranked, read_qrels, read_run, write_run
from rerank.evaluation.evaluate import evaluate
from rerank.jobs.cascade import join
from rerank.reports.html.cascades import cascade_tables
from rerank.runs.layout import CollectionFolder
from rerank.utils.files import file_hash
from tests.support.small_collection import command, failed, in_a_copy

A, B = (f"runs/towns/{name}/fold1/checkpoint" for name in ("hinge", "smoothi"))
RUN = "runs/towns/bm25.run"


@pytest.fixture(scope="module")
def home(home, tmp_path_factory):
    """A copy of the collection with two models, and the cascade of both."""
    with in_a_copy(home, tmp_path_factory) as folder:
        main(command("--fold", "1", "--loss", "hinge", "--epochs", "1", "--lr", "0", "--training.head-lr", "0"))
        main(command("--fold", "1", "--loss", "smoothi", "--seed", "3"))
        main(["score", A, RUN, "--depth", "5", "--then", B, "--then.depth", "2", "--out", "runs/towns/both.run"])
    return folder


def test_the_second_models_documents_are_above_the_rest_in_the_first_models_order(here):
    main(["score", A, RUN, "--depth", "5", "--out", "a.run"])
    first = read_run("a.run")
    write_run("top.run", {q: {d: scores[d] for d in ranked(scores)[:2]} for q, scores in first.items()}, "t")
    main(["score", B, "top.run", "--collection", "towns", "--out", "b.run"])
    second, both = read_run("b.run"), read_run("runs/towns/both.run")
    assert both.keys() == first.keys()
    differs = 0
    for query_id, scores in both.items():
        best = ranked(second[query_id])
        rest = [doc_id for doc_id in ranked(first[query_id]) if doc_id not in best]
        assert ranked(scores) == [*best, *rest]
        assert {d: scores[d] for d in best} == pytest.approx(second[query_id], abs=1e-5)
        differs += best != ranked(first[query_id])[:2]
    assert differs  # the two models do not agree
    assert read_run("runs/towns/both.stage1.run") == first
    assert sorted(path.name for path in Path("runs/towns").glob("both*")) == [
        "both.run",
        "both.run.json",
        "both.stage1.run",
        "both.stage1.run.json",
    ]


def test_the_manifest_has_what_each_stage_cost_and_gained(here):
    facts = json.loads(Path("runs/towns/both.run.json").read_text())
    first, one, two = facts["cascade"]["stages"]
    runs = {RUN: first, "runs/towns/both.stage1.run": one, "runs/towns/both.run": two}
    qrels = read_qrels("runs/towns/qrels.txt")
    for file, stage in runs.items():
        assert stage["run"] == file
        for measure, mean in stage["means"].items():
            assert mean == pytest.approx(fmean(evaluate(qrels, read_run(file), [measure])[measure].values()))
    assert [stage.get("model") for stage in runs.values()] == [None, A, B]
    assert [stage["depth"] for stage in runs.values()] == [5, 5, 2]
    assert all(file_hash(Path(file)) == stage["sha256"] for file, stage in list(runs.items())[1:])
    scored = {file: sum(map(len, read_run(file).values())) for file in runs}
    assert one["cost"]["documents"] == scored["runs/towns/both.stage1.run"]
    assert (two["cost"]["queries"], two["cost"]["documents"]) == (15, 30)
    assert one["cost"]["tokens"] > two["cost"]["tokens"] > 30
    assert all(stage["cost"]["seconds"] >= 0 for stage in (one, two))
    assert facts["run"] == {"sha256": file_hash(Path("runs/towns/both.run"))}
    assert facts["model"] == B
    assert facts["cascade"]["first"]["model"] == A
    assert facts["cascade"]["judged"] == 15


def test_the_table_and_the_report_show_it(here, capsys):
    main(["score", A, RUN, "--depth", "5", "--then", B, "--then.depth", "2", "--out", "again.run"])
    head, first, one, two, _, over, path = capsys.readouterr().out.splitlines()
    assert over == "Means over the 15 judged queries of the run; in brackets, the gain over the stage before."
    assert path == "again.run"
    assert re.split("  +", head) == ["stage", "depth", "documents", "tokens", "seconds", "nDCG@10", "nDCG@20", "RR@10"]
    assert re.split("  +", first)[:5] == [RUN, "5", "–", "–", "–"]
    assert re.match(rf"1: {A} +5 +\d+ +[\d,]+ +\d+\.\d +0\.\d{{4}} \([+-]0\.\d{{4}}\)", one)
    assert re.match(rf"2: {B} +2 +30 +[\d,]+ ", two)
    main(["report", "runs/towns", "--out", "report.html"])
    page = Path("report.html").read_text()
    assert "<h3>Cascades</h3>" in page
    assert "both.run: means over 15 judged queries." in page
    assert f"2: {B}" in page


def test_the_report_leaves_out_other_runs_and_names_a_damaged_manifest(here):
    folder = CollectionFolder(Path("runs/towns"))
    (table,) = cascade_tables(folder)
    assert [row[0] for row in table.rows] == [RUN, f"1: {A}", f"2: {B}"]
    Path("runs/towns/both.run.json").write_text("{")
    (missing,) = cascade_tables(folder)
    assert missing.reason.startswith("runs/towns/both.run.json: not JSON")
    Path("runs/towns/both.run.json").unlink()
    assert cascade_tables(folder) == []


def test_without_judgments_the_cost_alone_is_shown(here, capsys):
    shutil.rmtree("towns/qrels")
    main(["score", A, "--then", B, "--then.depth", "2", "--out", "out.run", "--collection", "towns"])
    out = capsys.readouterr().out
    assert "No query of the run is judged, so that the gain of each stage is not known." in out
    assert "nDCG" not in out
    assert out.splitlines()[-1] == "out.run"
    assert read_run("out.stage1.run").keys() == read_run("out.run").keys()


def test_new_queries_are_those_of_both_stages(here):
    Path("new.tsv").write_text("n1\tamber0 good\nn2\tbirch1 cedar2\n")
    main(["score", A, "--collection.queries", "new.tsv", "--then", B, "--then.depth", "1", "--out", "new.run"])
    assert list(read_run("new.run")) == ["n1", "n2"]


def test_a_second_stage_that_fails_leaves_the_first_ones_run(here, capsys, monkeypatch):
    from rerank.jobs import cascade

    rescore, calls = cascade.rescore, []

    def fail_second(*arguments):
        calls.append(arguments)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return rescore(*arguments)

    monkeypatch.setattr(cascade, "rescore", fail_second)
    with pytest.raises(SystemExit) as ended:
        main(["score", A, RUN, "--depth", "5", "--then", B, "--then.depth", "2", "--out", "cut.run"])
    assert ended.value.code == 130
    assert read_run("cut.stage1.run") == read_run("runs/towns/both.stage1.run")
    assert not Path("cut.run").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--then.depth", "5"], "--then.depth, --then.template: of no effect without --then, the second model"),
        (["--then", "./nowhere"], "--then ./nowhere: no such file or folder"),
        (["--then", "encoder"], "encoder: an encoder without a trained head"),
        (["--then", B, "--depth", "5", "--then.depth", "6"], "--then.depth 6: expected 1 to 5, the documents that the"),
        (["--then", B, "--then.depth", "0"], "--then.depth: got 0, expected 1 or more"),
        (["--then", B, "--then.template", "{query} {document}"], "was trained without a template"),
        (["--then", B, "--out", "-"], "--out -: with --then, expected the name of a file, as the first model's run"),
    ],
)
def test_bad_input_is_refused_before_the_first_model_scores(here, capsys, words, expected):
    out = [] if "--out" in words else ["--out", "no.run"]
    assert expected in failed(capsys, "score", A, RUN, *words, *out)
    assert not list(Path().glob("no*"))


def test_scores_decrease_where_float32_cannot_tell_them_apart() -> None:
    above = {"q": {"a": 2.0**26, "b": 2.0**26 - 8}}
    below = {"q": {"a": 9.0, "b": 8.0, "d": 7.0, "c": 7.0, "e": 6.9999}, "r": {"x": 1.0, "y": 2.0}}
    joined = join(above, below)
    assert ranked(joined["q"]) == ["a", "b", "d", "c", "e"]
    assert ranked(joined["r"]) == ["y", "x"]
    assert joined["r"] == {"y": 2.0, "x": 1.0}
