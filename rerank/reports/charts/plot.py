"""`rerank plot`: one chart of a folder of runs as a file for a paper."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rerank.errors import UserError, nearest
from rerank.reports.charts.depth import depths, draw_depths
from rerank.reports.charts.drawing import FORMATS, drawn, save
from rerank.reports.charts.gain import draw_gains, gains
from rerank.reports.charts.judged import draw_judged, judged
from rerank.reports.charts.learning import curves, draw_curves
from rerank.reports.charts.lengths import by_length, draw_lengths
from rerank.reports.charts.reliability import draw_reliability, reliability
from rerank.reports.charts.scores import draw_scores, scores
from rerank.runs.results import Experiment, Results, only_experiment, read_results


class Chart(NamedTuple):
    """`data` of the results, and of one experiment where the chart is of one; `draw` takes a figure and the data."""

    data: Callable[..., Any]
    draw: Callable[[Any, Any], None]
    height: float = 3.0


OF_ALL = {"depth": Chart(depths, draw_depths), "judged": Chart(judged, draw_judged)}
"""The charts that show all experiments of a collection."""

OF_ONE = {
    "learning": Chart(lambda _, experiment: curves(experiment), draw_curves, 5.5),
    "gain": Chart(gains, draw_gains),
    "scores": Chart(scores, draw_scores),
    "reliability": Chart(lambda _, experiment: reliability(experiment), draw_reliability, 4.0),
    "length": Chart(by_length, draw_lengths),
}
"""The charts of one experiment."""


def plot(name: str, folder: Path, out: Path, measure: str) -> Path:
    """Writes the chart of that name as PDF, SVG or PNG and returns the file.

    Raises UserError for an unknown chart or ending, and where the folder has nothing for the chart.
    """
    if name not in OF_ALL | OF_ONE:
        raise UserError(f"plot {name}: no such chart; {nearest(name, OF_ALL | OF_ONE)}")
    if out.suffix.lower() not in FORMATS:
        raise UserError(f"--out {out}: expected a name that ends in {', '.join(FORMATS)}")
    results = read_results(folder, measure)
    one: list[Experiment] = [only_experiment(results, name)] if name in OF_ONE else []
    save(chart_figure(name, results, *one), out)
    return out


def chart_figure(name: str, results: Results, *experiment: Experiment) -> Any:
    """The figure of a chart; raises UserError where there is nothing to draw."""
    chart = (OF_ALL | OF_ONE)[name]
    return drawn(chart.draw, chart.data(results, *experiment), chart.height)
