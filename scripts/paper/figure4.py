"""Draws Figure 4 of Thonet et al. 2021: SmoothI's variants, each optimising its metric, on every measure.

    rerank sweep configs/sweeps/letor.toml --collection MQ2008
    python -m scripts.paper figure4 runs/MQ2008 --out variants.svg

Points are test means with standard errors over the folds, and are printed too. For each variant, fold and measure, the
cell with the best validation mean of that measure is taken, as in Table 2. The suffix of --out is the format: pdf, png
or svg.
"""

import argparse
from pathlib import Path
from typing import Any

from rerank.evaluation.significance import mean_and_error
from rerank.evaluation.tables import aligned, format_mean
from rerank.experiments.report.drawing import colour, draw_figure, save
from rerank.experiments.runs.results import open_results
from rerank.utils.errors import UserError
from scripts.paper.selection import collect_test_result, select_by_validation
from scripts.paper.table2 import MEASURES

VARIANTS = ("p@1", "p@5", "p@10", "ndcg@1", "ndcg@5", "ndcg@10", "ndcg")
SHOWN = MEASURES[:-1]
"""Without AP, as in the paper."""

OFFSET = 0.1
"""Distance of two variants' points on a measure, in steps of the axis."""

Points = dict[str, list[tuple[float, float]]]
"""Variant -> mean and standard error on each measure of SHOWN."""


def points_of(folder: Path) -> Points:
    """The points of a collection; raises UserError if no cell of SmoothI is finished."""
    results = open_results(folder, SHOWN[0])
    variants: Points = {}
    for variant in VARIANTS:
        found = ("smoothi", variant)
        cells = [c for c in results.experiments if (c.setting("loss.name"), c.setting("loss.metric")) == found]
        if cells:
            variants[variant] = [
                mean_and_error(collect_test_result(results, select_by_validation(cells, measure), measure).means)
                for measure in SHOWN
            ]
    if not variants:
        raise UserError(f"{folder}: no finished cell of smoothi that sets the metric; finish the sweep")
    return variants


def table(variants: Points) -> str:
    """A row for each variant, a column for each measure."""
    rows = [[name.upper(), *(format_mean(*point, 3) for point in points)] for name, points in variants.items()]
    return aligned([["SmoothI for", *SHOWN], *rows])


def draw(figure: Any, variants: Points, title: str) -> None:
    """Draws the points of one collection."""
    axes = figure.subplots()
    for number, (variant, points) in enumerate(variants.items()):
        xs = [x + (number - (len(variants) - 1) / 2) * OFFSET for x in range(len(SHOWN))]
        means, errors = zip(*points, strict=True)
        style = {"fmt": "o", "markersize": 3, "capsize": 2, "color": colour(number)}
        axes.errorbar(xs, means, errors, label=variant.upper(), **style)
    axes.set_xticks(range(len(SHOWN)), SHOWN)
    axes.set(title=title, ylabel="test queries")
    figure.legend(loc="outside lower center", ncols=4)


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="runs/<collection>")
    parser.add_argument("--out", type=Path, help="the file of the figure")
    given = parser.parse_args(words)
    variants = points_of(given.folder)
    print(table(variants))
    if given.out:
        save(draw_figure(draw, variants, f"SmoothI's variants on {given.folder.name}", height=3.6), given.out)
