"""Figure 5 of Thonet et al. 2021 (RQ2): SmoothI's variants, each optimising its metric, on every measure.

    rerank sweep configs/sweeps/letor.toml --collection MQ2008
    python scripts/paper/figure5.py runs/MQ2007 runs/MQ2008 --out variants.pdf

A row of points for each collection, whose values are printed: test value, with its standard error over folds. For each
variant, fold and measure, the cell with the best validation value of that measure counts, as in table2.py.
"""

import argparse
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from rerank.errors import UserError
from rerank.evaluation.measures import measure_label
from rerank.evaluation.significance import mean_and_error
from rerank.evaluation.tables.table import FORMATS, Cell, Table, cells, render
from rerank.experiments.sweep.results import MEASURES, Results, figure
from scripts.paper.selection import choose, reached

VARIANTS = ("p@1", "p@5", "p@10", "ndcg@1", "ndcg@5", "ndcg@10", "ndcg")
MEASURED = [measure for measure in MEASURES if measure != "map"]  # as in the paper

Points = dict[str, list[tuple[float, float]]]
"""variant -> mean and standard error on each of MEASURED."""


def points(folder: Path) -> Points:
    """The points of a collection; raises UserError where there is none."""
    results = Results(folder)
    smoothi = [cell for cell in results.cells() if cell.setting("loss.name") == "smoothi"]
    found: Points = {}
    for variant in VARIANTS:
        of_variant = [cell for cell in smoothi if cell.setting("loss.metric") == variant]
        if of_variant:
            found[variant] = [
                mean_and_error(reached(results, choose(results, of_variant, measure), measure).means)
                for measure in MEASURED
            ]
    if not found:
        raise UserError(f"{folder}: no finished cell of smoothi that sets the metric")
    return found


def table(name: str, found: Points, form: str) -> str:
    """The values of one panel."""
    best = [max(means) for means in zip(*([mean for mean, _ in values] for values in found.values()), strict=True)]
    head = cells(["SmoothI for", *map(measure_label, MEASURED)])
    body = [
        [
            Cell(variant.upper()),
            *(Cell(figure(*point, 3), point[0] == top) for point, top in zip(values, best, strict=True)),
        ]
        for variant, values in found.items()
    ]
    title = f"{name}: mean ± standard error over the folds' test queries"
    return render(Table(title, [[head, *body]], ["{best}: best."]), form)


def draw(names: list[str], of_panels: list[Points], out: Path) -> None:
    """Draws a panel for each collection and saves the figure."""
    whole, panels = plt.subplots(len(names), figsize=(9, 3.2 * len(names)), squeeze=False, layout="constrained")
    for name, found, axes in zip(names, of_panels, panels[:, 0], strict=True):
        for place, (variant, values) in enumerate(found.items()):
            xs = [x + (place - (len(VARIANTS) - 1) / 2) * 0.1 for x in range(len(MEASURED))]
            means, errors = zip(*values, strict=True)
            axes.errorbar(xs, means, errors, fmt="o", markersize=4, capsize=2, label=f"SmoothI-{variant.upper()}")
        axes.set_xticks(range(len(MEASURED)), [measure_label(measure) for measure in MEASURED])
        axes.set(title=name, ylabel="test")
        axes.grid(axis="y", alpha=0.3)
    whole.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    whole.savefig(out, dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="runs/<collection>")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--format", choices=FORMATS, default="text", help="of the values")
    given = parser.parse_args()
    try:
        found = [points(folder) for folder in given.folders]
    except UserError as error:
        sys.exit(f"figure5.py: {error}")
    names = [folder.name for folder in given.folders]
    draw(names, found, given.out)
    print("\n".join(table(*panel, given.format) for panel in zip(names, found, strict=True)))
