import json
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rerank.cli.main import main
from rerank.data.folds import make_folds, write_folds
from rerank.data.runs import read_run
from rerank.data.trec import write_qrels, write_run
from rerank.data.types import Qrels, Run
from rerank.experiments.runs.run_files import compare_files
from rerank.utils.errors import UserError
from tests.support.paths import SHARED_DATA
from tests.support.small_collection import failed

ROBUST04 = SHARED_DATA / "data" / "robust04"
QUERIES = [f"q{i}" for i in range(12)]
FOLDS = make_folds(QUERIES, k=3)


def judgments() -> Qrels:
    return {query_id: {"d1": 1, "d2": 2, "d3": 0} for query_id in QUERIES}


def ranking(good: bool, seed: int = 0) -> Run:
    draw = random.Random(seed)
    boost = 5.0 if good else 0.0
    return {q: {f"d{i}": draw.gauss(0, 1) + boost * (i in (1, 2)) for i in range(8)} for q in QUERIES}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """runs/small with bm25.run, and two experiments whose folds are in files of their own."""
    folder = tmp_path / "runs" / "small"
    write_qrels(judgments(), folder / "qrels.txt")
    write_folds(folder / "folds.json", FOLDS)
    write_run(ranking(good=False), folder / "bm25.run", "bm25")
    for name, run in (("smoothi", ranking(good=True, seed=1)), ("hinge", ranking(good=False, seed=2))):
        write_run(run, folder / name / "all.run", name)
        for fold in FOLDS:
            write_run({q: run[q] for q in fold.test}, folder / name / f"fold{fold.name}" / "test.run", name)
    return folder


def table(*paths: list[Path], **arguments: Any) -> str:
    return f"{compare_files(*paths, **arguments)}\n"


def rows(text: str) -> list[list[str]]:
    return [re.split(r"  +", line) for line in text.split("\n\n")[1].splitlines()]


def test_judgments_and_folds_are_found_above_the_runs(runs: Path) -> None:
    text = table([runs / "bm25.run", runs / "hinge" / "all.run", runs / "smoothi" / "all.run"], measures=["map"])
    assert text.startswith("Mean ± standard error over 3 folds, 12 queries\n")
    assert [row[0] for row in rows(text)] == ["run", "bm25", "hinge", "smoothi"]
    assert [row[1][-1] for row in rows(text)[1:]] == ["†", "†", "*"]
    assert "Every run has every query.\n" in text


def test_files_of_folds_are_one_run(runs: Path) -> None:
    whole = table([runs / "smoothi" / "all.run", runs / "bm25.run"])
    parts = [runs / "smoothi" / f"fold{fold.name}" / "test.run" for fold in FOLDS]
    assert table([*parts, runs / "bm25.run"]) == whole
    (runs / "folds.json").unlink()
    assert table([*parts[::-1], runs / "bm25.run"]) == whole
    assert "over 12 queries\n" in table([runs / "smoothi" / "all.run"])


def test_one_fold(runs: Path) -> None:
    test = FOLDS[1].test
    text = table([runs / "bm25.run", runs / "smoothi" / "fold2" / "test.run"], fold="2", measures=["P@1"])
    assert text.startswith(f"Mean ± standard error over {len(test)} queries of fold 2\n")
    assert "Every run has every query.\n" in text
    with pytest.raises(UserError, match="fold 9: no such fold; expected one of 1, 2, 3"):
        table([runs / "bm25.run"], fold="9")
    with pytest.raises(UserError, match=r"smoothi and .*qrels.txt \(fold 1\) have no query in common"):
        table([runs / "smoothi" / "fold2" / "test.run"], fold="1")
    assert table([runs / "bm25.run"], fold="all") == table([runs / "bm25.run"])


def test_no_mean_over_folds_if_queries_of_a_run_or_of_the_folds_are_missing(runs: Path) -> None:
    with pytest.raises(UserError, match=r"smoothi: no query of fold 1, 3; expected .* \(`--fold 2`\)"):
        table([runs / "bm25.run", runs / "smoothi" / "fold2" / "test.run"])
    write_qrels({**judgments(), "outside": {"d1": 1}}, runs / "qrels.txt")
    with pytest.raises(UserError, match=r"folds.json: 1 of 13 judged queries are in no fold \(outside\), so there is"):
        table([runs / "bm25.run"])
    assert " queries of fold 2\n" in table([runs / "bm25.run"], fold="2")
    write_folds(runs / "folds.json", [FOLDS[0], replace(FOLDS[1], test=FOLDS[0].test, valid=FOLDS[1].test)])
    with pytest.raises(UserError, match=r"folds.json: folds 1 and 2 both test query q\d+, expected one"):
        table([runs / "bm25.run"])


def test_queries_without_judgments_are_reported(runs: Path) -> None:
    write_run({**ranking(good=False), "unjudged": {"d1": 1.0}}, runs / "bm25.run", "bm25")
    text = table([runs / "bm25.run"])
    assert "Queries of the runs without judgments, which cannot count (1): unjudged.\n" in text


def test_judged_queries_that_a_run_lacks_count_0_or_are_left_out(runs: Path) -> None:
    partial = ranking(good=False)
    lacking = next(iter(partial))
    write_run({q: scores for q, scores in partial.items() if q != lacking}, runs / "part.run", "t")
    paths = [runs / "part.run", runs / "smoothi" / "all.run"]
    assert f"1 of 12 queries are missing and count 0: {lacking}." in table(paths)
    text = table(paths, judged_queries_only=True)
    assert "11 queries" in text
    assert f"1 judged queries that a run lacks are left out: {lacking}." in text


def test_runs_without_a_common_judged_query_are_refused(runs: Path, capsys: Any) -> None:
    """A run with the ids of another collection, or two runs of different queries."""
    (first, scores), *others = ranking(good=False).items()
    write_run({f"other-{first}": scores}, runs / "other.run", "t")
    paths = [str(runs / name) for name in ("other.run", "bm25.run")]
    assert f"got queries other-{first} and {first}, " in failed(capsys, "eval", *paths, "--judged-queries-only")
    write_run({first: scores}, runs / "one.run", "t")
    write_run(dict(others), runs / "rest.run", "t")
    paths = [str(runs / name) for name in ("one.run", "rest.run")]
    line = failed(capsys, "eval", *paths, "--judged-queries-only")
    assert line.endswith("qrels.txt: no judged query has documents in every run: nothing to compare")


def test_flags_without_effect_on_a_pipeline_are_refused(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "pipeline.toml").touch()
    assert "--measures" in failed(capsys, "eval", str(tmp_path), "--measures")  # without a measure
    for words in (["--folds", "folds.json"], ["--fold", "1"], ["--judged-queries-only"]):
        line = failed(capsys, "eval", str(tmp_path), *words)
        assert f"{' '.join(words)}: {tmp_path} is a pipeline, which ranks all queries; leave it out" in line


def test_a_leading_tilde_is_the_home_folder(runs: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOME", str(runs))
    main(["eval", "~/bm25.run", "--qrels=~/qrels.txt", "--folds=~/folds.json", "--measures", "AP"])
    assert "Mean ± standard error over 3 folds, 12 queries" in capsys.readouterr().out


def test_names_are_short_and_distinct(runs: Path) -> None:
    other = runs.parent / "other"
    write_run(ranking(good=False), other / "smoothi" / "all.run.gz", "t")
    paths = [runs / "smoothi" / "all.run", other / "smoothi" / "all.run.gz"]
    text = table(paths, qrels=runs / "qrels.txt", folds=runs / "folds.json")
    assert [row[0] for row in rows(text)] == ["run", "small/smoothi", "other/smoothi"]


def test_user_errors_are_reported(runs: Path, tmp_path: Path) -> None:
    smoothi = runs / "smoothi"
    with pytest.raises(UserError, match="expected at least one run file"):
        table([])
    with pytest.raises(UserError, match=r"bm25\.run: given twice"):
        table([runs / "bm25.run", runs / "bm25.run"])
    with pytest.raises(UserError, match="unknown 'bogus'"):
        table([runs / "bm25.run"], measures=["bogus"])
    write_run(ranking(good=True), tmp_path / "alone" / "deep" / "er" / "x.run", "t")
    with pytest.raises(UserError, match=r"no judgments: expected --qrels FILE, or qrels\.txt next to .*x\.run"):
        table([tmp_path / "alone" / "deep" / "er" / "x.run"])
    write_qrels(judgments(), tmp_path / "alone" / "qrels.txt")
    write_run(ranking(good=True), tmp_path / "alone" / "y.run", "t")
    both = [tmp_path / "alone" / "y.run", runs / "bm25.run"]
    assert "over 3 folds" in table(both)  # copies of the same judgments are the same judgments
    write_qrels({**judgments(), "q0": {"d1": 0}}, tmp_path / "alone" / "qrels.txt")
    with pytest.raises(UserError, match=r"differ; expected one qrels\.txt for all runs; name it"):
        table(both)
    write_run(ranking(good=True), smoothi / "fold1" / "test.run", "t")
    with pytest.raises(UserError, match=r"fold2.test\.run: query q\d+ is also in .*fold1.test\.run"):
        table([smoothi / "fold1" / "test.run", smoothi / "fold2" / "test.run"])
    (runs / "folds.json").unlink()
    with pytest.raises(UserError, match="is in fold 1 of another run, expected 2"):
        table([smoothi / "fold1" / "test.run", runs / "hinge" / "fold2" / "test.run"])
    with pytest.raises(UserError, match="fold 1: no such fold; expected --folds FILE"):
        table([runs / "bm25.run"], fold="1")


@pytest.mark.parametrize("name", ["qrels.txt", "folds.json"])
def test_a_link_out_of_the_folder_is_found_by_nobody_who_did_not_name_it(runs: Path, tmp_path: Path, name: str) -> None:
    """The error in a line of a private file would show this line."""
    (runs / name).rename(tmp_path / "elsewhere")
    (runs / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=rf"{name}: is a link that leads out of .*small; expected a file in the folder"):
        table([runs / "bm25.run"])
    named = {"qrels.txt": "qrels", "folds.json": "folds"}[name]
    assert "over 3 folds" in table([runs / "bm25.run"], **{named: tmp_path / "elsewhere"})


@pytest.mark.skipif(not ROBUST04.exists(), reason="no ../shared/data/robust04")
def test_bm25_on_robust04(tmp_path: Path) -> None:
    files = [ROBUST04 / f"bm25.fold{fold}.run.gz" for fold in range(1, 6)]
    text = table(files, qrels=ROBUST04 / "qrels.robust2004.txt.gz")
    assert text.startswith("Mean ± standard error over 5 folds, 249 queries\n")
    assert "bm25  0.4962 ± 0.0168  0.4710 ± 0.0100  0.4464 ± 0.0114  0.4198 ± 0.0113  0.4188 ± 0.0055\n" in text
    assert "Every run has every query.\n" in text
    assert "without judgments, which cannot count (1): 672.\n" in text
    everything: Run = {}
    for path in files:
        everything |= read_run(path)
    write_run(everything, tmp_path / "all.run", "t")
    text = table([tmp_path / "all.run"], ROBUST04 / "qrels.robust2004.txt.gz", measures=["ndcg_cut_20"])
    assert "over 249 queries\n" in text
    assert " 0.4198 ± " in text


def test_formats_and_views_of_the_command_line(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run({q: of for q, of in ranking(good=True).items() if q != "q0"}, runs / "part.run", "t")
    words = ["eval", str(runs / "bm25.run"), str(runs / "part.run"), "--measures", "AP", "Judged@3"]

    def printed(*more: str) -> str:
        main([*words, *more])
        return capsys.readouterr().out

    note = "part: 1 of 12 queries are missing and count 0: q0."
    for form in ("text", "markdown", "latex", "json"):
        assert note in printed("--format", form)
        assert note in printed("--format", form, *(["--per-query"] if form == "json" else ["--details"]))
    for view in ([], ["--per-query"]):
        main([*words, *view, "--format", "csv"])
        assert note in capsys.readouterr().err  # the lines of a CSV file are all data
    assert "\\caption{Comparison over 3 folds, 12 queries. " in printed("--details", "--format", "latex")
    assert "↓: better, worse than bm25 (two-sided paired Wilcoxon" in printed(
        "--baseline", "bm25", "--test", "wilcoxon"
    )
    lines = printed("--per-query").splitlines()
    assert lines[0] == "query_id,fold,run,measure,value"
    assert len(lines) == 1 + 12 * 2 * 2
    fold = next(one.name for one in FOLDS if "q0" in one.test)
    assert f"q0,{fold},part,AP,0.0" in lines
    found = json.loads(printed("--format", "json", "--correction", "holm", "--measures", "P@1"))
    assert (found["test"], found["correction"], len(found["comparisons"])) == ("t", "holm", 3 * 2)
    assert "--per-query: expected --format csv or json, got text" in failed(
        capsys, *words, "--per-query", "--format", "text"
    )
    assert "baseline part2: no such run; did you mean part?" in failed(capsys, *words, "--baseline", "part2")


def test_a_registered_test_and_correction_are_choices_and_in_the_legend(runs: Path) -> None:
    script = f"""
from rerank.evaluation.significance import CORRECTIONS, significance_test

@significance_test("constant", label="constant test", note="no draws")
def constant_test(differences):
    return 0.01

CORRECTIONS["sidak"] = ("Sidak", lambda ps: [1 - (1 - p) ** len(ps) for p in ps])

from rerank.cli.main import main
words = ["eval", *[f"{runs}/{{name}}.run" for name in ("bm25", "hinge/all", "smoothi/all")], "--measures", "AP"]
main([*words, "--test", "constant", "--correction", "sidak"])
main([*words, "--test", "constant", "--correction", "sidak", "--details"])
main([*words, "--test", "none"])
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "(two-sided paired constant test over the queries, p < 0.05, Sidak over the 2 other runs)" in result.stdout
    assert "two-sided paired constant test, no draws, corrected by Sidak over the 2 other runs" in result.stdout
    assert re.search(r"0\.0100  0\.0199 ", result.stdout)
    assert result.returncode == 2
    assert all(f'"{name}"' in result.stderr for name in ("t", "wilcoxon", "randomisation", "constant"))
