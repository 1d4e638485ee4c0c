"""`rerank plot`: writes one chart of a run folder, or of run files; the charts by name."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from rerank.evaluation.evaluate import evaluate
from rerank.experiments.report.depth import draw_depths
from rerank.experiments.report.drawing import INK, QUIET, SERIES, colour, draw_figure, format_of, hover, save
from rerank.experiments.runs.experiment_results import ExperimentResults, FoldResults
from rerank.experiments.runs.results import Compared, Results, compared_with_first, open_results
from rerank.experiments.runs.run_files import RunFiles, are_run_files, expect_not_given
from rerank.utils.errors import UserError, nearest
from rerank.utils.files import check_output


def logged_folds(experiment: ExperimentResults) -> list[FoldResults]:
    """The folds that have a log; raises UserError if there is none."""
    folds = [fold for fold in experiment.folds if fold.history]
    if not folds:
        raise UserError(f"{experiment.name}: no fold has a log.jsonl, so there are no learning curves")
    return folds


def draw_curves(figure: Figure, _: Results, experiment: ExperimentResults) -> None:
    """Draws loss, NDCG and validation over the epochs; a dot marks the kept epoch, a dashed line the first stage."""
    folds = logged_folds(experiment)
    loss, metric, valid = figure.subplots(3, 1, sharex=True)
    for number, fold in enumerate(folds):
        epochs = [record["epoch"] for record in fold.history]
        style = {"color": colour(number), "marker": "." if len(epochs) < 30 else ""}
        loss.plot(epochs, [record.get("loss") for record in fold.history], **style)
        metric.plot(epochs, [record.get("ndcg") for record in fold.history], **style)
        valid.plot(epochs, [record["valid"] for record in fold.history], **style)
        epoch, value = fold.kept["epoch"], fold.kept["valid"]
        (dot,) = valid.plot([epoch], [value], "o", color=colour(number), markersize=7)
        hover(dot, f"fold {fold.name}: epoch {epoch} kept, validation {value:.4f}")
        if (first := fold.first_stage) is not None:
            line = valid.axhline(first, color=colour(number), linewidth=0.8, linestyle="--")
            hover(line, f"fold {fold.name}: first stage {first:.4f}")
    loss.set_title("loss")
    metric.set_title("NDCG of the training lists")
    valid.set_title("validation; a dot is the kept epoch, a dashed line the first stage")
    valid.set_xlabel("epoch", color=INK)
    valid.xaxis.get_major_locator().set_params(integer=True)
    lines = [loss.lines[number] for number in range(len(folds))]
    figure.legend(lines, [f"fold {fold.name}" for fold in folds], loc="outside upper left", ncols=5, labelcolor=QUIET)


class Gain(NamedTuple):
    """A query's measure before and after re-ranking; `text` is "" if it is unknown."""

    query_id: str
    text: str
    before: float
    after: float

    @property
    def gain(self) -> float:
        return self.after - self.before


def gains(results: Results, experiment: Compared) -> list[Gain]:
    """The gain of every judged query, most helped first; raises UserError if the first stage's run is missing."""
    qrels, runs = results.judged(experiment.run), (experiment.candidates(), experiment.run)
    before, after = (evaluate(qrels, run, [results.measure])[results.measure] for run in runs)
    queries = [Gain(q, results.queries.get(q, ""), before[q], after[q]) for q in before]
    return sorted(queries, key=lambda query: (-query.gain, query.query_id))


def draw_gains(figure: Figure, results: Results, experiment: Compared) -> None:
    """Draws a bar per query."""
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


class Chart(NamedTuple):
    """A title, a caption, and `draw(figure, results)` or `draw(figure, results, experiment)`; height in inches."""

    title: str
    caption: str
    draw: Callable[..., None]
    height: float = 3.0


DEPTH = "depth"
LEARNING = "learning"
CHARTS = {
    DEPTH: Chart("Measure against depth", "Only the first documents of the first stage are re-ranked.", draw_depths),
    LEARNING: Chart("Learning curves", "Every fold, epoch by epoch.", draw_curves, 5.5),
    "gain": Chart("Gain of every query", "A bar is a query; its text is shown as a tooltip.", draw_gains),
}
"""The charts by name. DEPTH shows all experiments, the others one; LEARNING needs the folder of an experiment."""


def plot(name: str, paths: Sequence[Path], out: Path, measure: str = "nDCG@20", qrels: Path | None = None) -> Path:
    """Writes a chart as PDF, SVG or PNG; returns the file.

    `paths` has one folder, runs/<collection> or an experiment in it, or run files, which are compared with the first
    one on the judgments `qrels`. Raises UserError for an unknown chart or suffix, a file that cannot be written, and
    missing data.
    """
    if name not in CHARTS:
        raise UserError(f"plot {name}: no such chart; {nearest(name, CHARTS)}")
    check_output(out)
    format_of(out)
    results: Results
    if are_run_files(paths):
        if name == LEARNING:
            others = ", ".join(chart for chart in CHARTS if chart != LEARNING)
            raise UserError(f"plot {name}: needs the folder of an experiment; run files have {others}")
        results = compared_with_first(RunFiles.read(paths), qrels, measure)
    else:
        expect_not_given(paths[0], {"--qrels": qrels})
        results = open_results(paths[0], measure)
    shown = [] if name == DEPTH else results.experiments
    if len(shown) > 1:
        names = ", ".join(experiment.name for experiment in shown)
        raise UserError(f"plot {name}: shows one experiment, got {names}; expected the folder of one, or two run files")
    save(chart_figure(name, results, *shown), out)
    return out


def chart_figure(name: str, results: Results, *experiment: Compared) -> Figure:
    """The figure of a chart; raises UserError if there is nothing to draw."""
    return draw_figure(CHARTS[name].draw, results, *experiment, height=CHARTS[name].height)
