from rerank.tables.formats import Cell, Table, cells, render

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
        "% needs \\usepackage{booktabs}\n% 100% there.\n\\begin{table}\n\\centering\n\\caption{Mean $\\pm$"
    )
    assert "Bold: best. $^{\\dagger}$: worse, p $<$ 0.05. gain 2\\textasciicircum{}rel - 1.}\n" in text
    assert (
        "\\begin{tabular}{ll}\n\\toprule\nrun & P@5 \\\\\n\\midrule\n"
        "a\\_b|c & 0.1 $\\pm$ 0.2$^{\\dagger}$ \\\\\n\\bottomrule\n\\end{tabular}\n\\end{table}\n"
    ) in text
    assert "a\\_b|c & \\textbf{0.5}$^{\\uparrow}$ \\\\\n" in text
    assert text.isascii()
