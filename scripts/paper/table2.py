"""Table 2 of Thonet et al. 2021: every loss on every measure, from the runs of a sweep.

    rerank sweep configs/sweeps/letor.toml --collection MQ2008
    python scripts/paper/table2.py runs/MQ2008

Reads the cells in runs/<collection> (their config.toml, valid.run and test.run); prints a table for each folder given.
"""

import argparse
import sys
from pathlib import Path

from rerank.errors import UserError
from rerank.evaluation.measures import measure_label
from rerank.evaluation.significance import mean_and_error
from rerank.evaluation.tables.summary import GAIN_NOTE
from rerank.evaluation.tables.table import FORMATS, Table, render
from rerank.evaluation.tables.table import Cell as Text
from rerank.experiments.sweep.results import LOSSES, MEASURES, Cell, Results, figure, loss_label
from scripts.paper.selection import choose, reached, worse_than_best

LEVEL = 0.05


def table(folder: Path, form: str) -> str:
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
        columns.append(
            [
                Text(figure(*mean_and_error(row.means), 3), loss in best, "†" if loss in worse else "")
                for loss, row in rows.items()
            ]
        )
    body = [[Text(loss_label(loss)), *row] for loss, row in zip(losses, zip(*columns, strict=True), strict=True)]
    folds = len(results.folds)
    over = f"{folds} folds" if folds > 1 else f"{len(places)} seeds"
    legend = [
        f"{{best}}: best. †: worse than the best (two-sided paired t-test over the queries, "
        f"p < {LEVEL} / {max(1, len(losses) - 1)}: Bonferroni).",
        GAIN_NOTE,
    ]
    notes = [
        f"{sum(map(len, cells.values()))} cells. For each loss, fold and measure: the cell (variant, "
        "hyperparameters) with the best validation value of it.",
        *(f"Left out, as it lacks a fold or a seed: {loss_label(loss)}." for loss in left_out),
    ]
    title = f"{folder.name}: mean ± standard error over {over} on the test queries"
    head = [Text(text) for text in ("loss", *map(measure_label, MEASURES))]
    return render(Table(title, [[head, *body]], legend, notes), form)


def of_loss(cells: list[Cell]) -> dict[str, list[Cell]]:
    """The cells of each loss, in the paper's order; those that it does not have come last."""
    names = {str(cell.setting("loss.name")) for cell in cells}
    ordered = [*(name for name in LOSSES if name in names), *sorted(names - LOSSES.keys())]
    return {name: [cell for cell in cells if cell.setting("loss.name") == name] for name in ordered}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="runs/<collection>")
    parser.add_argument("--format", choices=FORMATS, default="text")
    given = parser.parse_args()
    try:
        print("\n".join(table(folder, given.format) for folder in given.folders))
    except UserError as error:
        sys.exit(f"table2.py: {error}")
