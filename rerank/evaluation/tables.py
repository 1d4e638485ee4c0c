"""Tables, written as aligned text, Markdown, or LaTeX for a paper (booktabs)."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rerank.utils.errors import escaped

FORMATS = ("text", "markdown", "latex")
BEST = {"text": "*", "markdown": "bold", "latex": "Bold"}
SHRUNK = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"  # shrinks a wide table to the page
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "†": r"$^{\dagger}$",
    "↑": r"$^{\uparrow}$",
    "↓": r"$^{\downarrow}$",
    "−": "$-$",
    "<": "$<$",
    "≥": r"$\geq$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


@dataclass(frozen=True)
class Cell:
    """A value as text, and the mark after it; the best value of a column is bold, or has a star in plain text."""

    text: str
    best: bool = False
    mark: str = ""


@dataclass(frozen=True)
class Table:
    """Blocks of rows of cells; the first row of a block is its head. `legend` explains the marks; `notes` follow."""

    title: str
    blocks: Sequence[Sequence[Sequence[Cell]]]
    legend: Sequence[str] = ()
    notes: Sequence[str] = ()


def cells(texts: Sequence[str]) -> list[Cell]:
    """A row of cells without marks."""
    return list(map(Cell, texts))


def format_mean(mean: float, error: float, digits: int = 4) -> str:
    """A mean and its standard error, which is left out if it is NaN.

    >>> format_mean(0.5, 0.0312), format_mean(0.5, math.nan, digits=2)
    ('0.5000 ± 0.0312', '0.50')
    """
    return f"{mean:.{digits}f}" if math.isnan(error) else f"{mean:.{digits}f} ± {error:.{digits}f}"


def render(table: Table, form: str = "text") -> str:
    """The table in one of FORMATS, with escapes for control characters.

    `{best}` in the legend becomes the format's mark of the best value.
    """
    table = _plain(table)
    legend = [line.replace("{best}", BEST[form]) for line in table.legend]
    if form == "latex":
        return _latex(table, legend)
    block, line = (_markdown, "- {}") if form == "markdown" else (_text, "{}")
    footer = "\n".join(map(line.format, [*legend, *table.notes]))
    return "\n\n".join(filter(None, [table.title, *map(block, table.blocks), footer])) + "\n"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of texts as lines with aligned columns.

    >>> print(aligned([["run", "AP"], ["bm25", "0.2241"]]))
    run   AP
    bm25  0.2241
    """
    rows = [list(map(escaped, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _plain(table: Table) -> Table:
    """The table without control characters: its cells are the names of runs and ids, and its notes have them too."""
    blocks = [[[replace(cell, text=escaped(cell.text)) for cell in row] for row in block] for block in table.blocks]
    legend, notes = (list(map(escaped, lines)) for lines in (table.legend, table.notes))
    return Table(escaped(table.title), blocks, legend, notes)


def _text(block: Sequence[Sequence[Cell]]) -> str:
    return aligned([[cell.text + "*" * cell.best + cell.mark for cell in row] for row in block])


def _markdown(block: Sequence[Sequence[Cell]]) -> str:
    rows = [[(f"**{cell.text}**" if cell.best else cell.text) + cell.mark for cell in row] for row in block]
    head, *body = ("| " + " | ".join(text.replace("|", r"\|") for text in row) + " |" for row in rows)
    return "\n".join([head, "|---" * len(block[0]) + "|", *body])


def _latex(table: Table, legend: Sequence[str]) -> str:
    caption = " ".join(_escaped(line if line.endswith(".") else f"{line}.") for line in (table.title, *legend))
    lines = [*(f"% {note}" for note in table.notes), r"\begin{table*}", r"\centering", f"\\caption{{{caption}}}"]
    for block in table.blocks:
        head, *body = (" & ".join(map(_latex_cell, row)) + r" \\" for row in block)
        columns = "l" * len(block[0])
        lines += [SHRUNK, f"\\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule"]
        lines += [r"\end{tabular}}", r"\par\medskip"]
    return "% needs \\usepackage{booktabs, graphicx}\n" + "\n".join([*lines[:-1], r"\end{table*}"]) + "\n"


def _latex_cell(cell: Cell) -> str:
    text = _escaped(re.sub(r"(?<!\S)(\[?)-(?=\d)", r"\1−", cell.text))  # a minus, not a hyphen
    return (f"\\textbf{{{text}}}" if cell.best else text) + _escaped(cell.mark)


def _escaped(text: str) -> str:
    return re.sub(".", lambda match: LATEX.get(match[0], match[0]), text)
