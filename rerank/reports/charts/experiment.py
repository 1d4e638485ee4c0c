"""Charts of one run: its learning curves, and the change of the measure of each query."""

from typing import Any, NamedTuple

from rerank.evaluation.evaluate import evaluate
from rerank.reports.charts.drawing import INK, QUIET, SERIES, colour, hover
from rerank.runs.experiment_results import ExperimentResults
from rerank.runs.results import Compared, Results
from rerank.utils.errors import UserError


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


def draw_curves(figure: Any, _: Results, experiment: ExperimentResults) -> None:
    """Three panels over the epochs; a dot marks the kept epoch."""
    data = curves(experiment)
    loss, metric, valid = figure.subplots(3, 1, sharex=True)
    for number, curve in enumerate(data):
        epochs = [record["epoch"] for record in curve.records]
        style = {"color": colour(number), "marker": "." if len(epochs) < 30 else ""}
        for axes, key in ((loss, "loss"), (metric, "ndcg"), (valid, "valid")):
            axes.plot(epochs, [record[key] for record in curve.records], **style)
        epoch, value = curve.kept["epoch"], curve.kept["valid"]
        (dot,) = valid.plot([epoch], [value], "o", color=colour(number), markersize=7)
        hover(dot, f"fold {curve.fold}: epoch {epoch} kept, validation {value:.4f}")
    loss.set_title("loss")
    metric.set_title("NDCG of the training lists")
    valid.set_title("validation; a dot is the kept epoch")
    valid.set_xlabel("epoch", color=INK)
    valid.xaxis.get_major_locator().set_params(integer=True)
    lines = [loss.lines[number] for number in range(len(data))]
    figure.legend(lines, [f"fold {curve.fold}" for curve in data], loc="outside upper left", ncols=5, labelcolor=QUIET)


class Gain(NamedTuple):
    """A query's measure before and after re-ranking; `text` is "" if unknown."""

    query_id: str
    text: str
    before: float
    after: float

    @property
    def gain(self) -> float:
        """After - before."""
        return self.after - self.before


def gains(results: Results, experiment: Compared) -> list[Gain]:
    """The gain of every judged query, most helped first; raises UserError if the first stage's run is missing."""
    qrels, runs = results.judged(experiment.run), (experiment.candidates(), experiment.run)
    before, after = (evaluate(qrels, run, [results.measure])[results.measure] for run in runs)
    queries = [Gain(q, results.queries.get(q, ""), before[q], after[q]) for q in before]
    return sorted(queries, key=lambda query: (-query.gain, query.query_id))


def draw_gains(figure: Any, results: Results, experiment: Compared) -> None:
    """A bar per query."""
    axes, queries = figure.subplots(), gains(results, experiment)
    for x, query in enumerate(queries):
        (bar,) = axes.bar([x], [query.gain], width=1.0 if len(queries) > 60 else 0.8, color=SERIES[query.gain < 0])
        bar.set_in_layout(False)  # laying out hundreds of bars is slow, and none exceeds the axes
        text = f"{query.query_id}: {query.text}" if query.text else query.query_id
        hover(bar, f"{text} — {query.before:.3f} → {query.after:.3f} ({query.gain:+.3f})")
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.set_xticks([])
    axes.grid(visible=False, axis="x")
    helped, hurt = (sum(sign * query.gain > 0 for query in queries) for sign in (1, -1))
    axes.set_xlabel(f"{len(queries)} queries: {helped} helped, {hurt} hurt, {len(queries) - helped - hurt} as before")
    axes.set_ylabel(f"change of {results.measure}")
