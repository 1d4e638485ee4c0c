"""Reliability of the smooth metric: SmoothI's NDCG against the true one, in training, batch by batch."""

from typing import Any, NamedTuple

import numpy as np

from rerank.errors import UserError
from rerank.reports.charts.drawing import INK, SERIES, legend_above
from rerank.runs.results import Experiment

POINTS = 1500  # more of them make a page slow and hide each other


class Reliability(NamedTuple):
    """(points, 2) exact and smooth NDCG of the first half of each fold's epochs, and of the second.

    A point is a step where the logs have steps, and else an epoch.
    """

    of: str
    first: np.ndarray
    second: np.ndarray


def reliability(experiment: Experiment) -> Reliability:
    """The pairs of all folds; raises UserError where no log is left."""
    records = [
        (record, 2 * record["epoch"] > len(fold.history)) for fold in experiment.folds for record in fold.history
    ]
    if not records:
        raise UserError(f"{experiment.name}: no fold has a log.jsonl, so smooth and true NDCG are not known")
    if not all("smooth" in record for record, _ in records):
        raise UserError(f"{experiment.name}: its log has no smooth NDCG, which is not measured for feature vectors")
    steps = all("steps" in record for record, _ in records)
    halves: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    for record, late in records:
        of = record["steps"] if steps else {"ndcg": [record["ndcg"]], "smooth": [record["smooth"]]}
        halves[late].extend(zip(of["ndcg"], of["smooth"], strict=True))
    first, second = (np.array(pairs).reshape(-1, 2) for pairs in halves)
    return Reliability("step" if steps else "epoch", first, second)


def draw_reliability(figure: Any, data: Reliability) -> None:
    """The points around the diagonal, on which the smooth metric is the true one."""
    axes = figure.subplots()
    everything = np.concatenate([data.first, data.second])
    low, high = everything.min(), everything.max()
    margin = 0.04 * (high - low) or 0.1
    axes.plot([low, high], [low, high], color=INK, linewidth=0.8, linestyle="--", label="the same")
    every = -(-len(everything) // POINTS)
    for points, name, colour in (
        (data.first, "first half of the epochs", SERIES[1]),
        (data.second, "second half", SERIES[0]),
    ):
        style = {"markersize": 9, "alpha": 0.9} if len(everything) < 100 else {"markersize": 4, "alpha": 0.5}
        axes.plot(points[::every, 0], points[::every, 1], ".", color=colour, mew=0, label=name, **style)
    axes.set_xlim(low - margin, high + margin)
    axes.set_ylim(low - margin, high + margin)
    axes.set_xlabel(f"NDCG of the lists, {data.of} by {data.of}" + (f"; one in {every} is drawn" if every > 1 else ""))
    axes.set_ylabel("SmoothI's NDCG")
    legend_above(axes, columns=2)
