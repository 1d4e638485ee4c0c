"""Draws Figure 3 of Thonet et al. 2021: SmoothI-NDCG's validation NDCG over alpha and delta, as a heat map.

    rerank sweep configs/sweeps/alpha_delta.toml --collection MQ2008 --output.folder alpha_delta
    python -m scripts.paper figure3 alpha_delta/MQ2008 --out alpha_delta.svg

A square is the mean over the folds with its best learning rate. The values are printed too. The suffix of --out is the
format: pdf, png or svg.
"""

import argparse
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

from rerank.evaluation.tables import aligned
from rerank.experiments.report.drawing import draw_figure, save
from rerank.experiments.runs.results import open_results
from rerank.utils.errors import UserError

Squares = dict[tuple[float, float], float]
"""(alpha, delta) -> the mean over the folds."""


def squares_of(folder: Path) -> Squares:
    """The best mean of each square; raises UserError if there is no finished cell of SmoothI-NDCG."""
    means = defaultdict(list)
    cells = open_results(folder, "nDCG").experiments
    folds = max(len(cell.folds) for cell in cells)
    for cell in cells:
        square = cell.setting("loss.alpha"), cell.setting("loss.delta")
        if (cell.setting("loss.name"), cell.setting("loss.metric")) != ("smoothi", "ndcg") or None in square:
            continue
        values = [value for fold in cell.folds if (value := fold.validation_mean("nDCG")) is not None]
        if len(values) == folds:
            means[square].append(fmean(values))
    if not means:
        raise UserError(f"{folder}: no finished cell of smoothi with metric ndcg, alpha and delta; finish the sweep")
    return {square: max(values) for square, values in means.items()}


def axes_of(squares: Squares) -> tuple[list[float], list[float]]:
    """The values of alpha and of delta, ascending."""
    alphas, deltas = (sorted({square[axis] for square in squares}) for axis in (0, 1))
    return alphas, deltas


def table(squares: Squares) -> str:
    """A row for each alpha, a column for each delta."""
    alphas, deltas = axes_of(squares)
    rows = [[f"{a:g}", *(f"{squares[a, d]:.4f}" if (a, d) in squares else "" for d in deltas)] for a in alphas]
    return aligned([["alpha \\ delta", *(f"{delta:g}" for delta in deltas)], *rows])


def draw(figure: Any, squares: Squares, title: str) -> None:
    """Draws the map."""
    alphas, deltas = axes_of(squares)
    grid = [[squares.get((alpha, delta), float("nan")) for delta in deltas] for alpha in alphas]
    axes = figure.subplots()
    axes.grid(visible=False)
    image = axes.imshow(grid, cmap="viridis", aspect="auto", origin="lower")
    middle = (min(squares.values()) + max(squares.values())) / 2
    for (alpha, delta), value in squares.items():
        place = deltas.index(delta), alphas.index(alpha)
        axes.text(*place, f"{value:.4f}", ha="center", va="center", color="black" if value > middle else "white")
    axes.set_xticks(range(len(deltas)), [f"{delta:g}" for delta in deltas])
    axes.set_yticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas])
    axes.set(xlabel="δ", ylabel="α", title=title)
    figure.colorbar(image, ax=axes)


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="runs/<collection>")
    parser.add_argument("--out", type=Path, help="the file of the figure")
    given = parser.parse_args(words)
    squares = squares_of(given.folder)
    print(table(squares))
    if given.out:
        title = f"SmoothI-NDCG on {given.folder.name}: nDCG of the validation queries"
        save(draw_figure(draw, squares, title), given.out)
