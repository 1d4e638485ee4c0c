"""Reliability of the smooth metric: SmoothI's NDCG against the exact one, on the training lists."""

from typing import Any, NamedTuple

import numpy as np

from rerank.reports.charts.drawing import INK, SERIES, legend_above
from rerank.runs.experiment_results import ExperimentResults
from rerank.utils.errors import UserError

POINTS = 1500  # more points make a page slow and hide each other


class Reliability(NamedTuple):
    """(points, 2) exact and smooth NDCG of the first half of each fold's epochs, and of the second.

    A point is a step if the logs have steps, otherwise an epoch: `unit` is "step" or "epoch".
    """

    unit: str
    first: np.ndarray
    second: np.ndarray


def reliability(experiment: ExperimentResults) -> Reliability:
    """The pairs of all folds; raises UserError if there is no log."""
    records = [
        (record, 2 * record["epoch"] > len(fold.history)) for fold in experiment.folds for record in fold.history
    ]
    if not records:
        raise UserError(f"{experiment.name}: no fold has a log.jsonl, so smooth and exact NDCG are unknown")
    if not all("smooth" in record for record, _ in records):
        raise UserError(f"{experiment.name}: its log has no smooth NDCG, which is not measured for feature vectors")
    steps = all("steps" in record for record, _ in records)
    halves: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    for record, late in records:
        values = record["steps"] if steps else {"ndcg": [record["ndcg"]], "smooth": [record["smooth"]]}
        halves[late].extend(zip(values["ndcg"], values["smooth"], strict=True))
    first, second = (np.array(pairs).reshape(-1, 2) for pairs in halves)
    return Reliability("step" if steps else "epoch", first, second)


def draw_reliability(figure: Any, data: Reliability) -> None:
    """The points around the diagonal, where smooth and exact metric are equal."""
    axes = figure.subplots()
    points = np.concatenate([data.first, data.second])
    low, high = points.min(), points.max()
    margin = 0.04 * (high - low) or 0.1
    axes.plot([low, high], [low, high], color=INK, linewidth=0.8, linestyle="--", label="equal")
    every = -(-len(points) // POINTS)
    few = len(points) < 100
    for half, name, colour in (
        (data.first, "first half of the epochs", SERIES[1]),
        (data.second, "second half", SERIES[0]),
    ):
        style = {"markersize": 9, "alpha": 0.9} if few else {"markersize": 4, "alpha": 0.5}
        axes.plot(half[::every, 0], half[::every, 1], ".", color=colour, mew=0, label=name, **style)
    axes.set_xlim(low - margin, high + margin)
    axes.set_ylim(low - margin, high + margin)
    axes.set_xlabel(
        f"NDCG of the lists, {data.unit} by {data.unit}" + (f"; one in {every} is drawn" if every > 1 else "")
    )
    axes.set_ylabel("SmoothI's NDCG")
    legend_above(axes, columns=2)
