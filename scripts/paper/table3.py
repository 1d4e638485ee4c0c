"""Makes Table 3 of Thonet et al. 2021, the seconds of a training epoch by loss, from the logs of a sweep.

    rerank sweep configs/sweeps/runtime.toml --collection MQ2008 --workers 1
    python -m scripts.paper table3 runs/MQ2008

A value is the median over the epochs and the folds of a cell but for its first epoch, which loads libraries. An epoch's
time is without validation and saving. One worker trains the cells one after the other, so that they do not compete.
"""

import argparse
from pathlib import Path
from statistics import median

from rerank.evaluation.tables import aligned
from rerank.experiments.runs.experiment_results import ExperimentResults
from rerank.experiments.runs.results import open_results
from rerank.utils.errors import UserError
from scripts.paper.table2 import LOSSES


def seconds_of(cell: ExperimentResults) -> float:
    """The median time of an epoch; raises UserError for a cell with one epoch."""
    times = [record["seconds"] for fold in cell.folds for record in fold.history[1:]]
    if not times:
        raise UserError(f"{cell.name}: has one epoch, which loads libraries; expected two or more (--epochs 5)")
    return median(times)


def label(cell: ExperimentResults) -> str:
    """The loss and its metric, as SmoothI-NDCG@10."""
    name, metric = str(cell.setting("loss.name")), cell.setting("loss.metric")
    shown = LOSSES.get(name, name)
    return f"{shown}-{str(metric).upper()}" if metric else shown


def table(folders: list[Path]) -> str:
    """A row for each loss, a column for each collection."""
    columns = {folder.name: open_results(folder, "nDCG").experiments for folder in folders}
    times = {name: {label(cell): seconds_of(cell) for cell in cells} for name, cells in columns.items()}
    order = list(LOSSES.values())
    labels = sorted({one for column in times.values() for one in column}, key=lambda one: _place(one, order))
    rows = [[one, *(f"{column[one]:.3f}" if one in column else "" for column in times.values())] for one in labels]
    return f"{aligned([['loss', *times], *rows])}\n\nSeconds per training epoch (median), without validation.\n"


def _place(name: str, order: list[str]) -> tuple[int, str]:
    loss = name.partition("-")[0]
    return (order.index(loss) if loss in order else len(order)), name


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="runs/<collection>")
    print(table(parser.parse_args(words).folders))
