"""Draws Figure 4 of Thonet et al. 2021: SmoothI-NDCG's validation NDCG over alpha and delta, as a heat map.

    rerank sweep configs/sweeps/alpha_delta.toml --collection MQ2007 --output.folder alpha_delta
    python -m scripts.paper.figure4 alpha_delta/MQ2007 --out alpha_delta.png

A square is the mean over folds with its best learning rate. Reads the cells of smoothi with metric ndcg that set alpha
and delta. The suffix of --out is the format: png, pdf or svg.
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from rerank.utils.errors import UserError
from scripts.paper.tables import open_results


def squares(folder: Path) -> dict[tuple[float, float], float]:
    """(alpha, delta) -> the best mean over folds; raises UserError if there is none."""
    results = open_results(folder)
    means = defaultdict(list)
    for cell in results.experiments:
        square = cell.setting("loss.alpha"), cell.setting("loss.delta")
        loss = cell.setting("loss.name"), cell.setting("loss.metric")
        finished = all(results.has_fold(cell.name, fold) for fold in results.folds)
        if finished and loss == ("smoothi", "ndcg") and None not in square:
            means[square].append(fmean(results.validation_mean(cell.name, fold, "nDCG") for fold in results.folds))
    if not means:
        raise UserError(f"{folder}: no finished cell of smoothi with metric ndcg, alpha and delta")
    return {square: max(values) for square, values in means.items()}


def draw(folder: Path, out: Path) -> None:
    """Draws the map and saves it."""
    means = squares(folder)
    alphas, deltas = (sorted({square[axis] for square in means}) for axis in (0, 1))
    grid = [[means.get((alpha, delta), float("nan")) for delta in deltas] for alpha in alphas]
    figure, axes = plt.subplots(figsize=(1.6 + 1.1 * len(deltas), 1.4 + 0.7 * len(alphas)), layout="constrained")
    image = axes.imshow(grid, cmap="viridis", aspect="auto", origin="lower")
    middle = (min(means.values()) + max(means.values())) / 2
    for (alpha, delta), value in means.items():
        colour = "black" if value > middle else "white"
        axes.text(
            deltas.index(delta), alphas.index(alpha), f"{value:.4f}", ha="center", va="center", color=colour, fontsize=9
        )
    axes.set_xticks(range(len(deltas)), [f"{delta:g}" for delta in deltas])
    axes.set_yticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas])
    axes.set(xlabel="δ", ylabel="α", title=f"SmoothI-NDCG on {folder.name}: validation NDCG")
    figure.colorbar(image, ax=axes)
    figure.savefig(out, dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="runs/<collection>")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    try:
        draw(given.folder, given.out)
    except UserError as error:
        sys.exit(f"figure4.py: {error}")
