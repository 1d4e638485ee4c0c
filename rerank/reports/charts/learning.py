"""Learning curves of every fold: loss, exact and smooth NDCG of the training lists, and validation."""

from typing import Any, NamedTuple

from rerank.reports.charts.drawing import INK, QUIET, colour, hover
from rerank.runs.experiment_results import ExperimentResults
from rerank.utils.errors import UserError


class Curve(NamedTuple):
    """A fold's log, one record per epoch; `kept` is the epoch whose weights were kept."""

    fold: str
    records: list[dict[str, Any]]
    kept: int


def curves(experiment: ExperimentResults) -> list[Curve]:
    """The curves of the folds that were begun; raises UserError if there is no log."""
    fold_curves = []
    for fold in experiment.folds:
        if fold.history:
            best = max(fold.history, key=lambda record: record["valid"])  # the first of several, as in training
            fold_curves.append(Curve(fold.name, fold.history, best["epoch"]))
    if not fold_curves:
        raise UserError(f"{experiment.name}: no fold has a log.jsonl, so there are no learning curves")
    return fold_curves


def draw_curves(figure: Any, data: list[Curve]) -> None:
    """Three panels over the epochs; a dot marks the kept epoch."""
    loss, metric, valid = figure.subplots(3, 1, sharex=True)
    for number, curve in enumerate(data):
        epochs = [record["epoch"] for record in curve.records]
        style = {"color": colour(number), "marker": "." if len(epochs) < 30 else ""}
        for axes, key, line in (
            (loss, "loss", "-"),
            (metric, "ndcg", "-"),
            (metric, "smooth", ":"),
            (valid, "valid", "-"),
        ):
            if all(key in record for record in curve.records):  # feature vectors have no smooth NDCG
                axes.plot(epochs, [record[key] for record in curve.records], line, **style)
        value = next(record["valid"] for record in curve.records if record["epoch"] == curve.kept)
        (dot,) = valid.plot([curve.kept], [value], "o", color=colour(number), markersize=7)
        hover(dot, f"fold {curve.fold}: epoch {curve.kept} kept, validation {value:.4f}")
    loss.set_title("loss")
    metric.set_title("NDCG of the training lists: exact (solid) and smooth (dotted)")
    valid.set_title("validation; a dot is the kept epoch")
    valid.set_xlabel("epoch", color=INK)
    valid.xaxis.get_major_locator().set_params(integer=True)
    lines = [loss.lines[number] for number in range(len(data))]
    figure.legend(lines, [f"fold {curve.fold}" for curve in data], loc="outside upper left", ncols=5, labelcolor=QUIET)
