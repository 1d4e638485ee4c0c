import re
import shutil
import subprocess

import pytest

from rerank.evaluation.tables.table import Cell, Table, cells, render

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


def test_a_long_name_is_told_once() -> None:
    long = "collection/smoothi-metric=ndcg_10-alpha=10-seed=1"
    blocks = [[cells(["run", measure]), cells(["bm25", "0.1"]), cells([long, "0.2"])] for measure in ("AP", "P@5")]
    assert render(Table("Means", blocks, of_runs=True)) == (
        f"Means\n\nrun 2:  {long}\n\nrun    AP\nbm25   0.1\nrun 2  0.2\n\nrun    P@5\nbm25   0.1\nrun 2  0.2\n"
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


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex is not here")
@pytest.mark.parametrize("columns", [5, 9])
def test_latex_fits_the_page_of_a_paper(tmp_path, columns: int) -> None:
    """505 pt are the text of a page of two columns; nine columns have to be shrunk to that."""
    wide = "0.7474 ± 0.0571" if columns == 5 else "-0.03 [-0.04, -0.01]"
    body = [cells(["warmup + bm25-depth=50", *[wide] * (columns if columns == 5 else 3), *["<0.0001"] * (columns - 5)])]
    block = [cells(["a_b%&#$^~{}\\", *["NDCG@20"] * (len(body[0]) - 1)]), *body]
    page = (
        "\\documentclass[twocolumn]{article}\\usepackage{booktabs,graphicx}\\textwidth=505pt\n\\begin{document}\n"
        f"{render(Table('p < 0.05, 5 %', [block, block]), 'latex')}\\end{{document}}\n"
    )
    (tmp_path / "paper.tex").write_text(page)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout
    assert not re.search(r"Overfull|Warning", made.stdout), made.stdout
