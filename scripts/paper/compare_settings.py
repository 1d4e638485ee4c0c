"""Compares the cells of a sweep with one of them: validation and test means over folds and seeds, and paired tests.

    rerank sweep configs/sweeps/training.toml --loss hinge --collection DIR ...
    python -m scripts.paper.compare_settings runs/DIR --reference hinge-schedule=constant

Cells that differ in the seed alone are one row. A row is compared with the reference on the folds and seeds that both
have: by query, each the mean over the seeds. ± is the standard error of the difference over the queries, and p is of a
two-sided paired t-test, not corrected.
"""

import argparse
import re
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from rerank.evaluation.measures import measure_name
from rerank.evaluation.significance import mean_and_error, paired_test
from rerank.evaluation.tables.table import aligned
from rerank.runs.layout import CollectionFolder
from rerank.runs.results import CollectionResults
from rerank.utils.errors import UserError

SEED = re.compile(r"-seed=\d+")
HEAD = ["settings", "runs", "validation", "test", "difference", "p"]

Cells = dict[tuple[str, int], str]
"""(fold, seed) -> the cell's name."""


def rows_of(results: CollectionResults) -> dict[str, Cells]:
    """The finished cells by their names without the seed."""
    rows: dict[str, Cells] = defaultdict(dict)
    for cell in results.experiments:
        for fold in results.folds:
            if results.has_fold(cell.name, fold):
                rows[SEED.sub("", cell.name)][fold, cell.setting("training.seed")] = cell.name
    return rows


def by_query(results: CollectionResults, cells: Cells) -> dict[str, float]:
    """query_id -> the mean over seeds."""
    values = defaultdict(list)
    for (fold, _), name in cells.items():
        for query_id, value in results.test_values(name, fold, results.measure).items():
            values[query_id].append(value)
    return {query_id: fmean(of_seeds) for query_id, of_seeds in sorted(values.items())}


def compare(folder: Path, reference: str, measure: str, layout: str) -> str:
    """The table; raises UserError if there is no cell of the reference."""
    results = CollectionResults(CollectionFolder(folder), [measure_name(measure)])
    rows = rows_of(results)
    if reference not in rows:
        raise UserError(f"--reference {reference}: no such cell in {folder}; expected one of {', '.join(sorted(rows))}")
    table = []
    for name, cells in rows.items():
        common = sorted(cells.keys() & rows[reference].keys())
        if not common:
            continue
        own, other = ({key: rows[row][key] for key in common} for row in (name, reference))
        valid = fmean(results.validation_mean(cell, fold, results.measure) for (fold, _), cell in own.items())
        test, base = by_query(results, own), by_query(results, other)
        row = [name, str(len(common)), f"{valid:.4f}", f"{fmean(test.values()):.4f}"]
        if name != reference:
            difference, error = mean_and_error([test[query_id] - base[query_id] for query_id in base])
            p = paired_test(list(test.values()), list(base.values()), "t")
            row += [f"{difference:+.4f} ± {error:.4f}", f"{p:.2f}"]
        else:
            row += ["", ""]
        table.append(row)
    table.sort(key=lambda row: row[0] != reference)
    if layout == "markdown":
        return "\n".join(f"| {' | '.join(row)} |" for row in [HEAD, ["---"] * len(HEAD), *table])
    return aligned([HEAD, *table])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="runs/<collection>")
    parser.add_argument("--reference", required=True, help="the cell to compare with")
    parser.add_argument("--measure", default="nDCG@20")
    parser.add_argument("--format", default="text", choices=("text", "markdown"))
    given = parser.parse_args()
    try:
        print(compare(given.folder, given.reference, given.measure, given.format))
    except UserError as error:
        sys.exit(f"compare_settings.py: {error}")
