"""Makes Table 2 of Thonet et al. 2021, every loss on every measure, from the runs of a sweep.

    rerank sweep configs/sweeps/letor.toml --collection MQ2008
    python -m scripts.paper table2 runs/MQ2008

Reads the cells in runs/<collection> (their config.toml, valid.run and test.run); prints a table for each folder given.
"""

import argparse
from pathlib import Path

from rerank.data.folds import read_folds
from rerank.evaluation.run_comparison import GAIN_NOTE, LEVEL
from rerank.evaluation.significance import mean_and_error
from rerank.evaluation.tables import FORMATS, Cell, Table, format_mean, render
from rerank.experiments.runs.experiment_results import ExperimentResults
from rerank.experiments.runs.layout import CollectionFolder
from rerank.experiments.runs.results import open_results
from rerank.utils.errors import UserError
from scripts.paper.selection import collect_test_result, compare_with_best, select_by_validation

MEASURES = ("P@1", "P@5", "P@10", "nDCG@1", "nDCG@5", "nDCG@10", "nDCG", "AP")
"""The columns of Table 2, "Learning-to-rank retrieval results", in its order."""

COLUMNS = 4
"""Measures of a block of the table, so that it fits a page."""

LOSSES = {
    "listnet": "ListNet",
    "listmle": "ListMLE",
    "listap": "ListAP",
    "lambda_loss": "LambdaLoss",
    "approx": "Approx",
    "fastsort": "FastSort",
    "ot": "OT",
    "neuralsort": "NeuralSort",
    "softsort": "SoftSort",
    "smoothi": "SmoothI",
}
"""Our names of the losses and the paper's, in its order; another loss has our name."""


def table(folder: Path, form: str) -> str:
    """The table of one collection, with a legend and notes."""
    results = open_results(folder, MEASURES[0])
    cells = group_by_loss(results.experiments)
    selected = {m: {loss: select_by_validation(cells[loss], m) for loss in cells} for m in MEASURES}
    by_loss = selected[MEASURES[0]]
    all_keys = set().union(*(set(by_fold_and_seed) for by_fold_and_seed in by_loss.values()))
    left_out = [loss for loss, by_fold_and_seed in by_loss.items() if set(by_fold_and_seed) != all_keys]
    losses = [loss for loss in cells if loss not in left_out]
    if not losses:
        raise UserError(
            f"{folder}: no loss has all {len(all_keys)} folds and seeds of the others; finish the sweep first"
        )
    columns = []
    for measure in MEASURES:
        rows = {loss: collect_test_result(results, selected[measure][loss], measure) for loss in losses}
        best, worse = compare_with_best(rows)
        columns.append(
            [
                Cell(format_mean(*mean_and_error(row.means), 3), loss in best, "†" if loss in worse else "")
                for loss, row in rows.items()
            ]
        )
    names = [Cell(LOSSES.get(loss, loss)) for loss in losses]
    blocks = []
    for first in range(0, len(MEASURES), COLUMNS):
        head = [Cell(text) for text in ("loss", *MEASURES[first : first + COLUMNS])]
        blocks.append([head, *map(list, zip(names, *columns[first : first + COLUMNS], strict=True))])
    folds = len(read_folds(CollectionFolder(folder).folds))
    over = f"{folds} folds" if folds > 1 else f"{len(all_keys)} seeds"
    legend = [
        f"{{best}}: best. †: worse than the best (two-sided paired t-test over the queries, "
        f"p < {LEVEL} / {max(1, len(losses) - 1)}: Bonferroni).",
        GAIN_NOTE,
    ]
    notes = [
        f"{sum(map(len, cells.values()))} cells. For each loss, fold and measure: the cell (variant, "
        "hyperparameters) with the best validation mean of that measure.",
        *(f"Left out, as a fold or a seed is missing: {LOSSES.get(loss, loss)}." for loss in left_out),
    ]
    title = f"{folder.name}: mean ± standard error over {over} on the test queries"
    return render(Table(title, blocks, legend, notes), form)


def group_by_loss(cells: list[ExperimentResults]) -> dict[str, list[ExperimentResults]]:
    """The cells of each loss, in the paper's order; losses that the paper does not have come last."""
    names = {str(cell.setting("loss.name")) for cell in cells}
    ordered = [*(name for name in LOSSES if name in names), *sorted(names - LOSSES.keys())]
    return {name: [cell for cell in cells if cell.setting("loss.name") == name] for name in ordered}


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="runs/<collection>")
    parser.add_argument("--format", choices=FORMATS, default="text")
    given = parser.parse_args(words)
    print("\n".join(table(folder, given.format) for folder in given.folders))
