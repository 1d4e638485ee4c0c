"""Table 2 of Thonet et al. 2021: every loss on every measure, from the runs of a sweep.

    rerank sweep configs/sweeps/letor.toml --collection MQ2008
    python scripts/table_letor.py runs/MQ2008

Reads the cells in runs/<collection> (their config.toml, valid.run and test.run); prints a table for each folder given.
"""

import argparse
import sys
from pathlib import Path

from rerank.errors import UserError
from rerank.evaluation import measure_label
from rerank.report import GAIN_NOTE, aligned
from rerank.significance import mean_and_error
from rerank.sweep.results import LOSSES, MEASURES, Cell, Results, figure, loss_label
from rerank.sweep.selection import choose, reached, worse_than_best

LEVEL = 0.05


def table(folder: Path, markdown: bool) -> str:
    """The table of one collection, with what to know about it below."""
    results = Results(folder)
    cells = of_loss(results.cells())
    chosen = {m: {loss: choose(results, of_it, m) for loss, of_it in cells.items()} for m in MEASURES}
    places = set().union(*(set(of_measure) for of_measure in chosen[MEASURES[0]].values()))
    left_out = [loss for loss, of_measure in chosen[MEASURES[0]].items() if set(of_measure) != places]
    losses = [loss for loss in cells if loss not in left_out]
    if not losses:
        raise UserError(
            f"{folder}: no loss has all {len(places)} folds and seeds of the others; finish the sweep first"
        )
    columns = []
    for measure in MEASURES:
        rows = {loss: reached(results, chosen[measure][loss], measure) for loss in losses}
        best, worse = worse_than_best(rows, LEVEL)
        texts = {loss: figure(*mean_and_error(row.means), 3) for loss, row in rows.items()}
        texts |= {loss: f"**{texts[loss]}**" if markdown else f"{texts[loss]}*" for loss in best}
        columns.append([texts[loss] + "†" * (loss in worse) for loss in losses])
    head = ["loss", *map(measure_label, MEASURES)]
    lines = [
        head,
        *([loss_label(loss), *row] for loss, row in zip(losses, zip(*columns, strict=True), strict=True)),
    ]
    folds = len(results.folds)
    over = f"{folds} folds" if folds > 1 else f"{len(places)} seeds"
    notes = [
        f"{folder.name}: mean ± standard error over {over} on the test queries; {sum(map(len, cells.values()))} cells.",
        "For each loss, fold and measure: the cell (variant, hyperparameters) with the best validation value of it.",
        f"{'bold' if markdown else '*'}: best. †: worse than the best (two-sided paired t-test over the queries, "
        f"p < {LEVEL} / {max(1, len(losses) - 1)}: Bonferroni).",
        GAIN_NOTE,
        *(f"Left out, as it lacks a fold or a seed: {loss_label(loss)}." for loss in left_out),
    ]
    return (markdown_table(lines) if markdown else aligned(lines)) + "\n\n" + "\n".join(notes) + "\n"


def of_loss(cells: list[Cell]) -> dict[str, list[Cell]]:
    """The cells of each loss, in the paper's order; those that it does not have come last."""
    names = {str(cell.setting("loss.name")) for cell in cells}
    ordered = [*(name for name in LOSSES if name in names), *sorted(names - LOSSES.keys())]
    return {name: [cell for cell in cells if cell.setting("loss.name") == name] for name in ordered}


def markdown_table(rows: list[list[str]]) -> str:
    """Rows of cells, the first the head, as Markdown."""
    head, *body = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="runs/<collection>")
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    try:
        print("\n".join(table(folder, given.markdown) for folder in given.folders))
    except UserError as error:
        sys.exit(f"table_letor.py: {error}")
