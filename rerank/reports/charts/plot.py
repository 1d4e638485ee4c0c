"""The charts by name, and `rerank plot`: one chart of a run folder, or of run files, as a file."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rerank.reports.charts.depth import draw_depths
from rerank.reports.charts.drawing import draw_figure, format_of, save
from rerank.reports.charts.experiment import draw_curves, draw_gains
from rerank.runs.results import Compared, Results, compared_with_first, open_results
from rerank.runs.run_files import RunFiles, are_run_files
from rerank.utils.errors import UserError, nearest
from rerank.utils.files import check_output


class Chart(NamedTuple):
    """A title, a caption, and what draws results in a figure; with an experiment, if the chart shows one."""

    title: str
    caption: str
    draw: Callable[..., None]
    height: float = 3.0


DEPTH, LEARNING = "depth", "learning"
CHARTS = {
    DEPTH: Chart("Measure against depth", "Only the first documents of the first stage are re-ranked.", draw_depths),
    LEARNING: Chart("Learning curves", "Every fold, epoch by epoch.", draw_curves, 5.5),
    "gain": Chart("Gain of every query", "A bar is a query; its text is shown as a tooltip.", draw_gains),
}
"""All but the first show one experiment; all but the learning curves need nothing but runs and judgments."""


def plot(name: str, paths: Sequence[Path], out: Path, measure: str = "nDCG@20", qrels: Path | None = None) -> Path:
    """Writes a chart as PDF, SVG or PNG; returns the file.

    `paths` are runs/<collection>, or an experiment in it; or run files, of which the first is compared with, and
    `qrels` their judgments. Raises UserError for an unknown chart or suffix, a file that cannot be written, or no data.
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
        results = open_results(paths[0], measure)
    shown = [] if name == DEPTH else results.experiments
    if len(shown) > 1:
        names = ", ".join(experiment.name for experiment in shown)
        raise UserError(f"plot {name}: shows one experiment, got {names}; expected the folder of one, or two run files")
    save(chart_figure(name, results, *shown), out)
    return out


def chart_figure(name: str, results: Results, *experiment: Compared) -> Any:
    """The figure of a chart; raises UserError if there is nothing to draw."""
    return draw_figure(CHARTS[name].draw, results, *experiment, height=CHARTS[name].height)
