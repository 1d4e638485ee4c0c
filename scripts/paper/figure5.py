"""Draws Figure 5 of Thonet et al. 2021 (RQ2): SmoothI's variants, each optimising its metric, on every measure.

    rerank sweep configs/sweeps/letor.toml --collection MQ2008
    python -m scripts.paper.figure5 runs/MQ2007 runs/MQ2008 --out variants.pdf

Each collection is a panel; its points, test means with standard errors over folds, are also printed. For each variant,
fold and measure, the cell with the best validation mean of that measure is used, as in table2.py.
"""

import argparse
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from rerank.evaluation.significance import mean_and_error
from rerank.evaluation.tables.table import FORMATS, Cell, Table, cells, format_mean, render
from rerank.utils.errors import UserError
from scripts.paper.selection import collect_test_result, select_by_validation
from scripts.paper.tables import MEASURES, open_results

VARIANTS = ("p@1", "p@5", "p@10", "ndcg@1", "ndcg@5", "ndcg@10", "ndcg")
SHOWN = MEASURES[:-1]  # without AP, as in the paper

Points = dict[str, list[tuple[float, float]]]
"""variant -> mean and standard error on each of SHOWN."""


def points(folder: Path) -> Points:
    """The points of a collection; raises UserError if there is none."""
    results = open_results(folder)
    smoothi = [cell for cell in results.experiments if cell.setting("loss.name") == "smoothi"]
    variants: Points = {}
    for variant in VARIANTS:
        candidates = [cell for cell in smoothi if cell.setting("loss.metric") == variant]
        if candidates:
            variants[variant] = [
                mean_and_error(
                    collect_test_result(results, select_by_validation(results, candidates, measure), measure).means
                )
                for measure in SHOWN
            ]
    if not variants:
        raise UserError(f"{folder}: no finished cell of smoothi that sets the metric")
    return variants


def table(name: str, variants: Points, form: str) -> str:
    """The values of one panel."""
    best = [max(means) for means in zip(*([mean for mean, _ in values] for values in variants.values()), strict=True)]
    head = cells(["SmoothI for", *SHOWN])
    body = [
        [
            Cell(variant.upper()),
            *(Cell(format_mean(*point, 3), point[0] == top) for point, top in zip(values, best, strict=True)),
        ]
        for variant, values in variants.items()
    ]
    title = f"{name}: mean ± standard error over the folds' test queries"
    return render(Table(title, [[head, *body]], ["{best}: best."]), form)


def draw(names: list[str], panels: list[Points], out: Path) -> None:
    """Draws a panel for each collection and saves the figure."""
    figure, rows = plt.subplots(len(names), figsize=(9, 3.2 * len(names)), squeeze=False, layout="constrained")
    for name, variants, axes in zip(names, panels, rows[:, 0], strict=True):
        for number, (variant, values) in enumerate(variants.items()):
            xs = [x + (number - (len(VARIANTS) - 1) / 2) * 0.1 for x in range(len(SHOWN))]
            means, errors = zip(*values, strict=True)
            axes.errorbar(xs, means, errors, fmt="o", markersize=4, capsize=2, label=f"SmoothI-{variant.upper()}")
        axes.set_xticks(range(len(SHOWN)), SHOWN)
        axes.set(title=name, ylabel="test")
        axes.grid(axis="y", alpha=0.3)
    figure.legend(*rows[0, 0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    figure.savefig(out, dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="runs/<collection>")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--format", choices=FORMATS, default="text", help="of the values")
    given = parser.parse_args()
    try:
        panels = [points(folder) for folder in given.folders]
    except UserError as error:
        sys.exit(f"figure5.py: {error}")
    names = [folder.name for folder in given.folders]
    draw(names, panels, given.out)
    print("\n".join(table(*panel, given.format) for panel in zip(names, panels, strict=True)))
