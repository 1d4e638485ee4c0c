"""Charts of one run: its learning curves, the change of the measure of each query, and the scores of documents."""

from typing import Any, NamedTuple

import numpy as np

from rerank.evaluation.evaluate import evaluate
from rerank.reports.charts.drawing import INK, QUIET, SERIES, colour, hover, legend_above
from rerank.runs.experiment_results import ExperimentResults
from rerank.runs.results import Compared, Results
from rerank.utils.errors import UserError

BINS = 40


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


class Gains(NamedTuple):
    """The queries, most helped first, and the label of the measure."""

    measure: str
    queries: list[Gain]


def gains(results: Results, experiment: Compared) -> Gains:
    """The gain of every judged query of the run; raises UserError if the first stage's run is missing."""
    qrels, runs = results.judged(experiment.run), (experiment.candidates(), experiment.run)
    before, after = (evaluate(qrels, run, [results.measure])[results.measure] for run in runs)
    queries = [
        Gain(query_id, results.queries.get(query_id, ""), before[query_id], after[query_id]) for query_id in before
    ]
    return Gains(results.measure, sorted(queries, key=lambda query: (-query.gain, query.query_id)))


def draw_gains(figure: Any, data: Gains) -> None:
    """A bar per query."""
    axes = figure.subplots()
    for x, query in enumerate(data.queries):
        (bar,) = axes.bar([x], [query.gain], width=1.0 if len(data.queries) > 60 else 0.8, color=SERIES[query.gain < 0])
        bar.set_in_layout(False)  # laying out hundreds of bars is slow, and none exceeds the axes
        text = f"{query.query_id}: {query.text}" if query.text else query.query_id
        hover(bar, f"{text} — {query.before:.3f} → {query.after:.3f} ({query.gain:+.3f})")
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.set_xticks([])
    axes.grid(visible=False, axis="x")
    helped, hurt = (sum(sign * query.gain > 0 for query in data.queries) for sign in (1, -1))
    axes.set_xlabel(
        f"{len(data.queries)} queries: {helped} helped, {hurt} hurt, {len(data.queries) - helped - hurt} as before"
    )
    axes.set_ylabel(f"change of {data.measure}")


class Scores(NamedTuple):
    """(documents,) scores of the relevant documents and of the others, judged or not, over all tested queries."""

    relevant: np.ndarray
    others: np.ndarray


def scores(results: Results, experiment: Compared) -> Scores:
    """The scores of the judged queries; raises UserError if one side has none."""
    relevant: list[float] = []
    others: list[float] = []
    for query_id, judged in results.judged(experiment.run).items():
        for doc_id, score in experiment.run[query_id].items():
            (relevant if judged.get(doc_id, 0) > 0 else others).append(score)
    if not relevant or not others:
        raise UserError(
            f"{experiment.name}: scored {len(relevant)} relevant documents and {len(others)} others: no chart"
        )
    return Scores(np.array(relevant), np.array(others))


def draw_scores(figure: Any, data: Scores) -> None:
    """Two histograms over the same bins, each in per cent of its documents."""
    axes = figure.subplots()
    edges = np.histogram_bin_edges(np.concatenate(data), BINS)
    for values, name, shade in ((data.others, "others", SERIES[1]), (data.relevant, "relevant", SERIES[0])):
        share = 100 / len(values) * np.ones(len(values))
        label = f"{name} ({len(values):,})"
        axes.hist(values, edges, weights=share, color=shade, alpha=0.55, histtype="stepfilled", label=label)
        axes.axvline(float(np.median(values)), color=shade, linewidth=1.2)
    axes.set_xlabel("score; a line is the median")
    axes.set_ylabel("% of these documents")
    legend_above(axes)
