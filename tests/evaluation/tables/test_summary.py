from collections.abc import Sequence
from typing import Any

from rerank.data.types import Measurements
from rerank.evaluation.run_comparison import compare_measurements
from rerank.evaluation.tables.summary import summary_table
from rerank.evaluation.tables.table import render

LOW = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}
HIGH = {"a": 0.31, "b": 0.39, "c": 0.5, "d": 0.62}


def table(
    rows: dict[str, Measurements],
    folds: Sequence[Sequence[str]] = (),
    over: str = "4 queries",
    notes: Sequence[str] = (),
    form: str = "text",
    **how: Any,
) -> str:
    return render(summary_table(compare_measurements(rows, folds, **how), over, notes, **how), form)


def test_one_run_has_no_marks() -> None:
    assert table({"bm25": {"AP": LOW}}, over="4 queries of fold 1", notes=["bm25: 1 of 4 queries is missing."]) == (
        "Mean ± standard error over 4 queries of fold 1\n\n"
        "run   AP\n"
        "bm25  0.2500 ± 0.0645\n\n"
        "bm25: 1 of 4 queries is missing.\n"
    )


def test_best_is_marked_and_what_is_worse_has_a_dagger() -> None:
    lines = table({"bm25": {"AP": LOW, "P@5": LOW}, "smoothi": {"AP": HIGH, "P@5": LOW}}).splitlines()
    assert lines[2:5] == [
        "run      AP                P@5",
        "bm25     0.2500 ± 0.0645†  0.2500 ± 0.0645*",
        "smoothi  0.4550 ± 0.0674*  0.2500 ± 0.0645*",
    ]
    assert lines[6] == "*: best. †: worse than the best (two-sided paired t-test over the queries, p < 0.05)."


def test_the_legend_names_test_and_correction() -> None:
    rows = {name: {"AP": values} for name, values in (("a", LOW), ("b", HIGH), ("c", LOW))}
    assert "t-test over the queries, p < 0.05, Bonferroni over the 2 other runs)." in table(rows)
    text = table(rows, test="randomisation", correction="holm")
    assert "randomisation test over the queries, p < 0.05, Holm over the 2 other runs)." in text
    assert "Wilcoxon signed-rank test over the queries, p < 0.05)." in table(rows, test="wilcoxon", correction="none")


def test_a_correction_can_take_a_dagger_away() -> None:
    near = {"a": 0.2, "b": 0.34, "c": 0.32, "d": 0.54}  # p = 0.03 beside HIGH
    rows = {"near": {"AP": near}, "high": {"AP": HIGH}}
    assert "near  0.3500 ± 0.0705†\n" in table(rows)
    assert "near   0.3500 ± 0.0705\n" in table({**rows, "other": {"AP": HIGH}})


def test_a_baseline_has_arrows_both_ways() -> None:
    middle = {query_id: (LOW[query_id] + HIGH[query_id]) / 2 for query_id in LOW}
    rows = {"low": {"AP": LOW}, "middle": {"AP": middle}, "high": {"AP": HIGH}}
    lines = table(rows, baseline="middle").splitlines()
    assert [line.split("  ")[-1].strip() for line in lines[3:6]] == [
        "0.2500 ± 0.0645↓",
        "0.3525 ± 0.0659",
        "0.4550 ± 0.0674*↑",
    ]
    assert lines[7].startswith("*: best. ↑, ↓: better, worse than middle (two-sided")


def test_lower_but_not_significantly_has_no_mark() -> None:
    noisy = {"a": 0.9, "b": 0.0, "c": 0.05, "d": 0.0}
    lines = table({"x": {"AP": noisy}, "y": {"AP": LOW}}).splitlines()
    assert lines[3].split("  ")[-1] == "0.2375 ± 0.2211"
    assert lines[4].endswith("*")


def test_a_single_query_has_no_error_and_no_test() -> None:
    text = table({"x": {"AP": {"a": 0.5}}, "y": {"AP": {"a": 0.25}}})
    assert "x    0.5000*\ny    0.2500\n" in text


def test_markdown_has_bold_and_blocks_of_five() -> None:
    names = ("P@1", "P@5", "P@10", "P@20", "AP", "nDCG")
    rows = {run: dict.fromkeys(names, values) for run, values in (("bm25", LOW), ("smoothi", HIGH))}
    text = table(rows, form="markdown")
    assert "| run | P@1 | P@5 | P@10 | P@20 | AP |\n|---|---|---|---|---|---|\n| bm25 | 0.2500 ± 0.0645† |" in text
    assert "| run | nDCG |\n|---|---|\n| bm25 | 0.2500 ± 0.0645† |\n| smoothi | **0.4550 ± 0.0674** |\n" in text
