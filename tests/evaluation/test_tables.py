"""Tables as text, Markdown and LaTeX; the summary of compared runs, and all details."""

from collections.abc import Sequence
from typing import Any

from rerank.data.types import Measurements
from rerank.evaluation.run_comparison import ComparisonSettings, compare_measurements, details_table, summary_table
from rerank.evaluation.tables import Cell, Table, cells, render

TABLE = Table(
    "Mean ± standard error over 5 folds",
    [
        [cells(["run", "nDCG(dcg='exp-log2')@20"]), [Cell("a_b|c"), Cell("0.5", best=True, mark="↑")]],
        [cells(["run", "P@5"]), [Cell("a_b|c"), Cell("0.1 ± 0.2", mark="†")]],
    ],
    ["{best}: best. †: worse, p < 0.05.", "gain 2^rel - 1."],
    ["100% there."],
)


def test_text() -> None:
    assert render(TABLE) == (
        "Mean ± standard error over 5 folds\n\n"
        "run    nDCG(dcg='exp-log2')@20\na_b|c  0.5*↑\n\n"
        "run    P@5\na_b|c  0.1 ± 0.2†\n\n"
        "*: best. †: worse, p < 0.05.\ngain 2^rel - 1.\n100% there.\n"
    )


def test_markdown() -> None:
    assert render(TABLE, "markdown") == (
        "Mean ± standard error over 5 folds\n\n"
        "| run | nDCG(dcg='exp-log2')@20 |\n|---|---|\n| a_b\\|c | **0.5**↑ |\n\n"
        "| run | P@5 |\n|---|---|\n| a_b\\|c | 0.1 ± 0.2† |\n\n"
        "- bold: best. †: worse, p < 0.05.\n- gain 2^rel - 1.\n- 100% there.\n"
    )


def test_latex_is_a_floating_table_of_booktabs() -> None:
    text = render(TABLE, "latex")
    assert text.startswith(
        "% needs \\usepackage{booktabs, graphicx}\n% 100% there.\n\\begin{table*}\n\\centering\n\\caption{Mean $\\pm$"
    )
    assert "Bold: best. $^{\\dagger}$: worse, p $<$ 0.05. gain 2\\textasciicircum{}rel - 1.}\n" in text
    assert (
        "\\begin{tabular}{ll}\n\\toprule\nrun & P@5 \\\\\n\\midrule\n"
        "a\\_b|c & 0.1 $\\pm$ 0.2$^{\\dagger}$ \\\\\n\\bottomrule\n\\end{tabular}}\n\\end{table*}\n"
    ) in text
    assert "a\\_b|c & \\textbf{0.5}$^{\\uparrow}$ \\\\\n" in text
    assert text.isascii()


def test_negative_numbers_have_a_minus_in_latex_and_names_keep_their_hyphen() -> None:
    row = cells(["bm25-depth=50", "-0.01 [-0.02, +0.01]", "-d"])
    text = render(Table("", [[cells(["run", "difference", "d"]), row]]), "latex")
    assert "bm25-depth=50 & $-$0.01 [$-$0.02, +0.01] & -d " in text


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
    settings = ComparisonSettings(**how)
    return render(summary_table(compare_measurements(rows, folds, settings), over, notes, settings), form)


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
        "bm25     0.2500 ± 0.0645†  0.2500 ± 0.0645",
        "smoothi  0.4550 ± 0.0674*  0.2500 ± 0.0645",  # of equal runs none is the best
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


ROWS = {"bm25": {"AP": LOW, "nDCG": LOW}, "smoothi": {"AP": HIGH, "nDCG": LOW}}


def test_a_block_a_measure_with_everything_in_words() -> None:
    settings = ComparisonSettings("bm25", "randomisation", "holm")
    compared = compare_measurements(ROWS, [["a", "b"], ["c", "d"]], settings, intervals=True)
    text = render(details_table(compared, "2 folds, 4 queries", ["A note."], settings))
    assert text.startswith("Comparison over 2 folds, 4 queries\n\nAP       mean [95 %]")
    line = next(line for line in text.splitlines() if line.startswith("smoothi  0.4550 ["))
    row = compared["AP"][1]
    for expected in (
        f"[{row.low:.4f}, {row.high:.4f}]*",
        "0.0674",
        "0.4550 ± 0.1050",
        f"+0.2050 [+{row.difference_low:.4f}, +{row.difference_high:.4f}]",
        f"{row.p:.4f}",
        "4/0/0",
    ):
        assert expected in line
    assert "\nbm25     0.2500 [" in text
    assert "reference\n" in text
    assert "10,000 bootstrap resamples of the queries" in text
    assert "two-sided paired randomisation test, 10,000 draws, corrected by Holm over the 1 other run of each" in text
    assert text.endswith("nDCG is trec_eval's, with gain rel (the losses have gain 2^rel - 1).\nA note.\n")


def test_without_correction_folds_or_others() -> None:
    settings = ComparisonSettings(correction="none")
    compared = compare_measurements(ROWS, settings=settings, intervals=True)
    assert "t-test, not corrected." in render(details_table(compared, "4 queries", settings=settings))
    one = compare_measurements({"bm25": ROWS["bm25"]}, intervals=True)
    alone = render(details_table(one, "4 queries"), "markdown")
    assert "| AP | mean [95 %] | SE, queries |\n" in alone
    assert "detectable" not in alone
