"""`rerank plot`: writes one chart of a run folder, or of run files, as a file."""

from collections.abc import Callable, Sequence
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
from rerank.runs.results import expect_one_experiment, read_results
from rerank.runs.run_file_results import Compared, Results, read_run_files
from rerank.runs.run_files import are_run_files
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

RUN_CHARTS = ("gain", "scores", "depth", "judged")
"""The charts that need nothing but runs and judgments."""


def plot(
    name: str,
    paths: Sequence[Path],
    out: Path,
    measure: str = "nDCG@20",
    qrels: Path | None = None,
    queries: Callable[[], dict[str, str]] = dict,
) -> Path:
    """Writes a chart as PDF, SVG or PNG; returns the file.

    `paths` are runs/<collection>, or an experiment in it; or run files, of which the first is compared with, and
    `qrels` and `queries` their judgments and the texts of their queries. `out` is - for a PDF to standard output.
    Raises UserError for an unknown chart or suffix, a file that cannot be written, or no data for the chart.
    """
    if name not in COLLECTION_CHARTS | EXPERIMENT_CHARTS:
        raise UserError(f"plot {name}: no such chart; {nearest(name, COLLECTION_CHARTS | EXPERIMENT_CHARTS)}")
    check_output(out)
    format_of(out)
    if are_run_files(paths):
        save(_figure_of_files(name, paths, measure, qrels, queries), out)
    else:
        save(_figure_of_folder(name, paths[0], measure), out)
    return out


def _figure_of_folder(name: str, folder: Path, measure: str) -> Any:
    results = read_results(folder, measure)
    if name in EXPERIMENT_CHARTS:
        expect_one_experiment(results, name)
        return chart_figure(name, results, results.experiments[0])
    return chart_figure(name, results)


def _figure_of_files(
    name: str, paths: Sequence[Path], measure: str, qrels: Path | None, queries: Callable[[], dict[str, str]]
) -> Any:
    if name not in RUN_CHARTS:
        raise UserError(f"plot {name}: needs the folder of an experiment; run files have {', '.join(RUN_CHARTS)}")
    results = read_run_files(paths, qrels, measure)
    if name in EXPERIMENT_CHARTS and len(results.experiments) > 1:
        raise UserError(f"plot {name}: expected two runs, got {len(results.runs)}: {', '.join(results.runs)}")
    results.queries.update(queries())
    return chart_figure(name, results, *(results.experiments if name in EXPERIMENT_CHARTS else []))


def chart_figure(name: str, results: Results, *experiment: Compared) -> Any:
    """The figure of a chart; raises UserError if there is nothing to draw."""
    chart = (COLLECTION_CHARTS | EXPERIMENT_CHARTS)[name]
    return draw_figure(chart.draw, chart.data(results, *experiment), chart.height)
