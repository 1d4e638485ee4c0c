"""Charts of the logs: learning curves, and the reliability of the smooth metric on the training lists."""

from typing import Any, NamedTuple

import numpy as np

from rerank.reports.charts.drawing import INK, QUIET, SERIES, colour, hover, legend_above
from rerank.runs.experiment_results import ExperimentResults
from rerank.utils.errors import UserError

POINTS = 1500  # more points make a page slow and hide each other


class Curve(NamedTuple):
    """A fold's log, one record per epoch; `kept` is the record of the epoch whose weights were kept."""

    fold: str
    records: list[dict[str, Any]]
    kept: dict[str, Any]


def curves(experiment: ExperimentResults) -> list[Curve]:
    """The curves of the folds that were begun; raises UserError if there is no log."""
    logs = [(fold.name, fold.history) for fold in experiment.folds if fold.history]
    if not logs:
        raise UserError(f"{experiment.name}: no fold has a log.jsonl, so there are no learning curves")
    # Of several best epochs max takes the first, as training does.
    return [Curve(name, history, max(history, key=lambda record: record["valid"])) for name, history in logs]


def draw_curves(figure: Any, data: list[Curve]) -> None:
    """Three panels over the epochs; a dot marks the kept epoch."""
    loss, metric, valid = figure.subplots(3, 1, sharex=True)
    panels = ((loss, "loss", "-"), (metric, "ndcg", "-"), (metric, "smooth", ":"), (valid, "valid", "-"))
    for number, curve in enumerate(data):
        epochs = [record["epoch"] for record in curve.records]
        style = {"color": colour(number), "marker": "." if len(epochs) < 30 else ""}
        for axes, key, line in panels:
            if all(key in record for record in curve.records):  # feature vectors have no smooth NDCG
                axes.plot(epochs, [record[key] for record in curve.records], line, **style)
        epoch, value = curve.kept["epoch"], curve.kept["valid"]
        (dot,) = valid.plot([epoch], [value], "o", color=colour(number), markersize=7)
        hover(dot, f"fold {curve.fold}: epoch {epoch} kept, validation {value:.4f}")
    loss.set_title("loss")
    metric.set_title("NDCG of the training lists: exact (solid) and smooth (dotted)")
    valid.set_title("validation; a dot is the kept epoch")
    valid.set_xlabel("epoch", color=INK)
    valid.xaxis.get_major_locator().set_params(integer=True)
    lines = [loss.lines[number] for number in range(len(data))]
    figure.legend(lines, [f"fold {curve.fold}" for curve in data], loc="outside upper left", ncols=5, labelcolor=QUIET)


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
    style = {"markersize": 9, "alpha": 0.9} if len(points) < 100 else {"markersize": 4, "alpha": 0.5}
    halves = (data.first, "first half of the epochs", SERIES[1]), (data.second, "second half", SERIES[0])
    for half, name, of_half in halves:
        axes.plot(half[::every, 0], half[::every, 1], ".", color=of_half, mew=0, label=name, **style)
    axes.set_xlim(low - margin, high + margin)
    axes.set_ylim(low - margin, high + margin)
    drawn = f"; one in {every} is drawn" if every > 1 else ""
    axes.set_xlabel(f"NDCG of the lists, {data.unit} by {data.unit}{drawn}")
    axes.set_ylabel("SmoothI's NDCG")
    legend_above(axes, columns=2)
