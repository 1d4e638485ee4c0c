"""`rerank report`: writes one HTML file about experiments or run files, by report.html and report.css."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rerank.data.collections import Collection, open_collection
from rerank.reports.charts.drawing import inline_svg
from rerank.reports.charts.gain import Gain, Gains, gains
from rerank.reports.charts.plot import chart_figure
from rerank.reports.html.movement import judged_table, length_tables, movement_table, truncation_table
from rerank.reports.html.parts import Missing, Rows, or_missing
from rerank.reports.html.provenance import cost_table, origin_tables, settings_tables
from rerank.reports.html.queries import QueryDetails, most_changed, query_details, shown_documents
from rerank.reports.html.scoreboard import fold_tables, summary, unfinished
from rerank.reports.html.texts import Texts, open_queries, read_documents
from rerank.reports.html.upper_bounds import recall_table, upper_bound_table
from rerank.runs.experiment_results import ExperimentResults
from rerank.runs.results import CollectionResults, read_results
from rerank.runs.run_file_results import Compared, Results, RunFileResults, read_run_files
from rerank.runs.table import compare_files
from rerank.utils.files import atomic_write, check_output
from rerank.utils.progress import log

HERE = Path(__file__).parent
CSS = HERE / "report.css"
CHARTS = {
    "learning": ("Learning curves", "Every fold, epoch by epoch."),
    "gain": ("Gain of every query", "A bar is a query; its text is shown as a tooltip."),
    "scores": ("Scores", "The model's scores of relevant documents and of others, over the queries of all folds."),
    "reliability": ("Smooth against exact NDCG", "SmoothI's NDCG of the training lists, and the exact one."),
    "length": ("By length", "The ranks of relevant documents before and after, by their length."),
    "depth": ("Measure against depth", "Only the first documents of the first stage are re-ranked."),
    "judged": ("Judged documents", "The share of judged documents, from rank 1 on."),
}
"""The title and the caption of each chart."""


class Figure(NamedTuple):
    """A chart: title, caption, and the SVG element or why it is missing."""

    title: str
    caption: str
    svg: str | Missing


class ExperimentSection(NamedTuple):
    """The section of one experiment; `changed` is None if its first stage's run is missing."""

    name: str
    description: str
    figures: list[Figure]
    changed: list[tuple[str, list[QueryDetails]]] | None
    gains: list[Gain]


def write_report(folder: Path | str, out: Path | str | None = None, measure: str = "nDCG@20") -> Path:
    """Writes the page of runs/<collection>, or of an experiment in it, and returns the file.

    `out` is report.html in the folder by default, and - for standard output. Raises UserError if no fold is finished,
    or `out` cannot be written.
    """
    out = Path(out) if out else Path(folder) / "report.html"
    check_output(out)
    results = read_results(Path(folder), measure)
    with atomic_write(out) as tmp:
        tmp.write_text(page(results), encoding="utf-8")
    return out


def write_report_of_files(
    paths: Sequence[Path], out: Path | None, measure: str, qrels: Path | None, collection: str
) -> Path:
    """Writes the page of run files, of which the first is compared with, and returns the file.

    `out` is report.html in the working directory by default. The collection, if one is named, has the texts. Raises
    UserError as `write_report` does, and if the files or the collection are wrong.
    """
    out = out or Path("report.html")
    check_output(out)
    results = read_run_files(paths, qrels, measure)
    with atomic_write(out) as tmp:
        tmp.write_text(_page_of_files(results, open_collection(collection) if collection else None), encoding="utf-8")
    return out


def open_templates() -> Environment:
    """The templates of this folder; they escape what they show."""
    return Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def page(results: CollectionResults) -> str:
    """The page as HTML. Texts of collections are escaped by the template, which trusts only the charts."""
    queries, collection, reason = open_queries(results)
    results.queries.update(queries)
    changed = _changed(results)
    texts = Texts(queries, {}, reason)
    if collection:
        texts = read_documents(collection, _shown(results, changed), results)
    if texts.reason:
        log.info(f"no texts: {texts.reason}")
    differing, settings = settings_tables(results.experiments)
    charts = ("learning", "gain", "scores", "reliability", "length")
    known = [experiment for experiment in results.experiments if experiment.first_stage]
    return _render(
        results,
        name=results.folder.path.resolve().name,
        texts_missing=texts.reason,
        summary=summary(results),
        unfinished=unfinished(results),
        fold_tables=fold_tables(results),
        truncation=truncation_table(results.experiments),
        lengths=length_tables(results, known),
        experiments=[
            _experiment(results, e, charts, _description(results, e), changed.get(e.name), texts)
            for e in results.experiments
        ],
        cost=cost_table(results.experiments),
        differing_settings=differing,
        settings=settings,
        origins=origin_tables(results.experiments),
    )


def _page_of_files(results: RunFileResults, collection: Collection | None) -> str:
    """The page of run files: without settings, times and what is known of trained models alone."""
    results.queries.update(collection.queries if collection else {})
    changed = _changed(results)
    no_texts = Texts({}, {}, "no --collection is named")
    texts = read_documents(collection, _shown(results, changed)) if collection else no_texts
    first = next(iter(results.runs))
    return _render(
        results,
        name=", ".join(results.runs),
        texts_missing=texts.reason,
        summary=compare_files(results.paths, results.qrels_file).table(),
        unfinished=[],
        fold_tables={},
        truncation=None,
        lengths=[],
        experiments=[
            _experiment(results, e, ("gain", "scores"), f"Compared with {first}.", changed[e.name], texts)
            for e in results.experiments
        ],
        cost=None,
    )


def _render(results: Results, **parts: Any) -> str:
    css = CSS.read_text(encoding="utf-8")
    parts |= {"css": css, "measure": results.measure, **_upper_bound_parts(results)}
    return open_templates().get_template("report.html").render(**parts)


def _changed(results: Results) -> dict[str, Gains]:
    """The gains of each run that has a first stage, by name."""
    return {e.name: gains(results, e) for e in results.experiments if e.first_stage}


def _shown(results: Results, changed: dict[str, Gains]) -> list[str]:
    """The documents of the queries that changed most."""
    return [
        document.doc_id
        for experiment in results.experiments
        if experiment.name in changed
        for side in most_changed(changed[experiment.name])
        for gain in side
        for document in shown_documents(results, experiment, gain.query_id)
    ]


def _upper_bound_parts(results: Results) -> dict[str, Any]:
    """The section on what re-ranking could and did do."""
    groups: dict[str, list[Compared]] = {}
    absent = []
    for experiment in results.experiments:
        if experiment.first_stage:
            groups.setdefault(results.first_stage_names[experiment.name], []).append(experiment)
        else:
            absent.append(or_missing(experiment.candidates))
    known = [experiment for group in groups.values() for experiment in group]
    return {
        "absent": absent,
        "bounds": [or_missing(_bounds, results, group) for group in groups.values()],
        "figures": [_figure(name, results) for name in ("depth", "judged")] if known else [],
        "movement": or_missing(movement_table, known) if known else None,
        "judged": or_missing(judged_table, results) if known else None,
    }


def _bounds(results: Results, experiments: list[Compared]) -> tuple[Rows, Rows, str]:
    return (upper_bound_table(results, experiments), *recall_table(results, experiments[0]))


def _experiment(
    results: Results,
    experiment: Compared,
    charts: Sequence[str],
    description: str,
    changed: Gains | None,
    texts: Texts,
) -> ExperimentSection:
    sides = None
    if changed:
        details = partial(query_details, results, experiment, texts=texts)
        sides = [
            (title, [details(gain) for gain in side])
            for title, side in zip(("Most helped", "Most hurt"), most_changed(changed), strict=True)
        ]
    figures = [_figure(name, results, experiment) for name in charts]
    return ExperimentSection(experiment.name, description, figures, sides, changed.queries if changed else [])


def _description(results: CollectionResults, experiment: ExperimentResults) -> str:
    settings = experiment.settings
    finished = ", ".join(fold.name for fold in experiment.folds if fold.run)
    loss = ", ".join(str(value) for value in settings.get("loss", {}).values())
    encoder = Path(settings.get("encoder", {}).get("name", "")).name
    model = f"Hidden units: {settings['network']['hidden']}" if experiment.has_features else f"Encoder: {encoder}"
    queries = len(results.judged(experiment.run))
    return f"Loss: {loss}. {model}. Finished folds: {finished}, with {queries} judged queries."


def _figure(name: str, results: Results, *experiment: Compared) -> Figure:
    title, caption = CHARTS[name]
    names = [e.name for e in results.experiments]
    key = "-".join([name, *(str(names.index(e.name)) for e in experiment)])
    label = ", ".join([title, *(e.name for e in experiment)])
    return Figure(title, caption, or_missing(lambda: inline_svg(chart_figure(name, results, *experiment), key, label)))
