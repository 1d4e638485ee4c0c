"""`rerank plot`: writes one chart of a run folder as a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rerank.reports.charts.depth import depths, draw_depths
from rerank.reports.charts.drawing import draw_figure, format_of, save
from rerank.reports.charts.gain import draw_gains, gains
from rerank.reports.charts.judged import draw_judged, judged
from rerank.reports.charts.learning import curves, draw_curves
from rerank.reports.charts.lengths import by_length, draw_lengths
from rerank.reports.charts.reliability import draw_reliability, reliability
from rerank.reports.charts.scores import draw_scores, scores
from rerank.runs.experiment_results import ExperimentResults
from rerank.runs.results import CollectionResults, only_experiment, read_results
from rerank.utils.errors import UserError, nearest
from rerank.utils.files import check_output


class Chart(NamedTuple):
    """`data` takes the results, and an experiment if the chart shows one; `draw` takes a figure and the data."""

    data: Callable[..., Any]
    draw: Callable[[Any, Any], None]
    height: float = 3.0


COLLECTION_CHARTS = {"depth": Chart(depths, draw_depths), "judged": Chart(judged, draw_judged)}
"""The charts that show all experiments of a collection."""

EXPERIMENT_CHARTS = {
    "learning": Chart(lambda _, experiment: curves(experiment), draw_curves, 5.5),
    "gain": Chart(gains, draw_gains),
    "scores": Chart(scores, draw_scores),
    "reliability": Chart(lambda _, experiment: reliability(experiment), draw_reliability, 4.0),
    "length": Chart(by_length, draw_lengths),
}
"""The charts of one experiment."""


def plot(name: str, folder: Path | str, out: Path | str, measure: str = "nDCG@20") -> Path:
    """Writes a chart of runs/<collection>, or of an experiment in it, as PDF, SVG or PNG; returns the file.

    `out` is - for a PDF to standard output. Raises UserError for an unknown chart or suffix, a file that cannot be
    written, or a folder without data for the chart.
    """
    out = Path(out)
    if name not in COLLECTION_CHARTS | EXPERIMENT_CHARTS:
        raise UserError(f"plot {name}: no such chart; {nearest(name, COLLECTION_CHARTS | EXPERIMENT_CHARTS)}")
    check_output(out)
    format_of(out)
    results = read_results(Path(folder), measure)
    one: list[ExperimentResults] = [only_experiment(results, name)] if name in EXPERIMENT_CHARTS else []
    save(chart_figure(name, results, *one), out)
    return out


def chart_figure(name: str, results: CollectionResults, *experiment: ExperimentResults) -> Any:
    """The figure of a chart; raises UserError if there is nothing to draw."""
    chart = (COLLECTION_CHARTS | EXPERIMENT_CHARTS)[name]
    return draw_figure(chart.draw, chart.data(results, *experiment), chart.height)
