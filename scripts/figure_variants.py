"""Figure 5 of Thonet et al. 2021 (RQ2): SmoothI's variants, each optimising its metric, on every measure.

    rerank sweep configs/sweeps/letor.toml --collection MQ2008
    python scripts/figure_variants.py runs/MQ2007 runs/MQ2008 --out variants.pdf

A row of points for each collection: test value, with its standard error over folds. For each variant, fold and measure,
the cell with the best validation value of that measure counts, as in table_letor.py.
"""

import argparse
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from rerank.errors import UserError
from rerank.measures import measure_label
from rerank.significance import mean_and_error
from rerank.sweep.results import MEASURES, Results
from rerank.sweep.selection import choose, reached

VARIANTS = ("p@1", "p@5", "p@10", "ndcg@1", "ndcg@5", "ndcg@10", "ndcg")
MEASURED = [measure for measure in MEASURES if measure != "map"]  # as in the paper


def points(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """The variants' mean and standard error on each measure; raises UserError where there is none."""
    results = Results(folder)
    smoothi = [cell for cell in results.cells() if cell.setting("loss.name") == "smoothi"]
    found = {}
    for variant in VARIANTS:
        cells = [cell for cell in smoothi if cell.setting("loss.metric") == variant]
        if cells:
            found[variant] = [
                mean_and_error(reached(results, choose(results, cells, measure), measure).means) for measure in MEASURED
            ]
    if not found:
        raise UserError(f"{folder}: no finished cell of smoothi that sets the metric")
    return found


def draw(folders: list[Path], out: Path) -> None:
    """Draws a panel for each collection and saves the figure."""
    figure, panels = plt.subplots(len(folders), figsize=(9, 3.2 * len(folders)), squeeze=False, layout="constrained")
    for folder, axes in zip(folders, panels[:, 0], strict=True):
        for place, (variant, values) in enumerate(points(folder).items()):
            xs = [x + (place - (len(VARIANTS) - 1) / 2) * 0.1 for x in range(len(MEASURED))]
            means, errors = zip(*values, strict=True)
            axes.errorbar(xs, means, errors, fmt="o", markersize=4, capsize=2, label=f"SmoothI-{variant.upper()}")
        axes.set_xticks(range(len(MEASURED)), [measure_label(measure) for measure in MEASURED])
        axes.set(title=folder.name, ylabel="test")
        axes.grid(axis="y", alpha=0.3)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    figure.savefig(out, dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="runs/<collection>")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    try:
        draw(given.folders, given.out)
    except UserError as error:
        sys.exit(f"figure_variants.py: {error}")
