"""`rerank report`: writes one HTML file about experiments or run files, by report.html and report.css."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rerank.config.languages import ENGLISH
from rerank.data.collections import open_collection
from rerank.evaluation.tables.table import Table
from rerank.reports.charts.drawing import inline_svg
from rerank.reports.charts.gain import Gain, Gains, gains
from rerank.reports.charts.plot import CHARTS, chart_figure
from rerank.reports.html.parts import Missing, Rows, or_missing
from rerank.reports.html.provenance import cost_table, origin_tables, settings_tables
from rerank.reports.html.queries import (
    QueryDetails,
    Texts,
    most_changed,
    open_texts,
    query_details,
    read_documents,
    shown_documents,
)
from rerank.reports.html.tables import (
    judged_table,
    movement_table,
    recall_table,
    truncation_table,
    upper_bound_table,
)
from rerank.runs.experiment_results import ExperimentResults
from rerank.runs.results import Compared, Results, compared_with_first, read_results
from rerank.runs.run_files import RunFiles, are_run_files
from rerank.runs.table import compare_files
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, check_output
from rerank.utils.progress import log

HERE = Path(__file__).parent
CSS = HERE / "report.css"


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


def write_report(
    paths: Sequence[Path], out: Path | None, measure: str, qrels: Path | None = None, collection: str = ""
) -> Path:
    """Writes the page of runs/<collection> or of an experiment in it, or of run files; returns the file.

    Run files are compared with the first of them; `qrels` are their judgments, and the collection, if one is named, has
    their texts. `out` is report.html in the folder by default, or in the working directory, and - for standard output.
    Raises UserError if no fold is finished, a file is wrong, or `out` cannot be written.
    """
    of_files = are_run_files(paths)
    out = out or Path("" if of_files else paths[0]) / "report.html"
    check_output(out)
    if of_files:
        page = page_of_files(RunFiles.read(paths), measure, qrels, collection)
    else:
        page = page_of_experiments(read_results(paths[0], measure))
    with atomic_write(out) as tmp:
        tmp.write_text(page, encoding="utf-8")
    return out


def open_templates() -> Environment:
    """The templates of this folder; they escape what they show."""
    return Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def page_of_experiments(results: Results[ExperimentResults]) -> str:
    """The page of a collection's experiments. Texts are escaped by the template, which trusts only the charts."""
    experiments, first = results.experiments, results.experiments[0]
    language, missing = first.setting("collection.language") or ENGLISH, ""
    try:
        collection = open_texts(first)
        results.queries.update(collection.queries)
    except UserError as error:
        collection, missing = None, str(error)
    changed, texts = _changed(results), Texts({}, language, missing)
    if collection:
        texts = read_documents(collection, _shown(results, changed), language, first)
    if texts.reason:
        log.info(f"no texts: {texts.reason}")
    finished = [experiment for experiment in experiments if experiment.folder.all_run.is_file()]
    unfinished = [experiment for experiment in experiments if experiment not in finished]
    folds = dict.fromkeys(fold.name for experiment in unfinished for fold in experiment.folds if fold.run)
    differing, settings = settings_tables(experiments)
    charts = ("learning", "gain", "scores", "reliability")
    return _render(
        results,
        texts,
        name=first.folder.collection.path.resolve().name,
        summary=_table(finished, None) if finished else None,
        unfinished=unfinished,
        fold_tables={
            name: _table([e for e in experiments if any(f.name == name and f.run for f in e.folds)], name)
            for name in folds
        },
        truncation=truncation_table(experiments),
        experiments=[_section(results, e, charts, _description(results, e), changed, texts) for e in experiments],
        cost=cost_table(experiments),
        differing_settings=differing,
        settings=settings,
        origins=origin_tables(experiments),
    )


def page_of_files(files: RunFiles, measure: str, qrels: Path | None, source: str) -> str:
    """The page of run files: without settings, times and what is known of trained models alone."""
    results = compared_with_first(files, qrels, measure)
    collection = open_collection(source) if source else None
    results.queries.update(collection.queries if collection else {})
    changed, texts = _changed(results), Texts({}, ENGLISH, "no --collection is named")
    if collection:
        texts = read_documents(collection, _shown(results, changed), ENGLISH)
    description = f"Compared with {next(iter(files.runs))}."
    return _render(
        results,
        texts,
        name=", ".join(files.runs),
        summary=compare_files(files, results.qrels_file).table(),
        unfinished=[],
        fold_tables={},
        truncation=None,
        experiments=[
            _section(results, e, ("gain", "scores"), description, changed, texts) for e in results.experiments
        ],
        cost=None,
    )


def _render(results: Results, texts: Texts, **parts: Any) -> str:
    """The page of these parts, with the section on what re-ranking could and did do."""
    groups: dict[str, list[Compared]] = {}
    for experiment in results.experiments:
        if experiment.first_stage:
            groups.setdefault(results.first_stage_names[experiment.name], []).append(experiment)
    known = [experiment for group in groups.values() for experiment in group]
    parts |= {
        "css": CSS.read_text(encoding="utf-8"),
        "measure": results.measure,
        "texts_missing": texts.reason,
        "absent": [or_missing(e.candidates) for e in results.experiments if not e.first_stage],
        "bounds": [or_missing(_bounds, results, group) for group in groups.values()],
        "figures": [_figure(name, results) for name in ("depth", "judged")] if known else [],
        "movement": or_missing(movement_table, known) if known else None,
        "judged": or_missing(judged_table, results) if known else None,
    }
    return open_templates().get_template("report.html").render(**parts)


def _bounds(results: Results, experiments: list[Compared]) -> tuple[Rows, Rows, str]:
    return (upper_bound_table(results, experiments), *recall_table(results, experiments[0]))


def _changed(results: Results) -> dict[str, Gains]:
    """The gains of each run that has a first stage, by name."""
    return {e.name: gains(results, e) for e in results.experiments if e.first_stage}


def _shown(results: Results, changed: dict[str, Gains]) -> list[str]:
    """The documents of the queries that changed most."""
    return [d for e in results.experiments if e.name in changed for d in shown_documents(e, changed[e.name])]


def _table(experiments: list[ExperimentResults], fold: str | None) -> Table:
    """The table of `rerank eval`: the experiments, or one fold of them, below their first stages."""
    collection = experiments[0].folder.collection
    first = [experiment.first_stage_file for experiment in experiments if experiment.first_stage]
    runs = [e.folder.fold(fold).test_run if fold else e.folder.all_run for e in experiments]
    folds = collection.folds if collection.folds.is_file() else None
    return compare_files([*dict.fromkeys(first), *runs], collection.qrels, folds, fold).table()


def _section(
    results: Results,
    experiment: Compared,
    charts: Sequence[str],
    description: str,
    changed: dict[str, Gains],
    texts: Texts,
) -> ExperimentSection:
    sides, of_queries = None, changed.get(experiment.name)
    if of_queries:
        sides = [
            (title, [query_details(results, experiment, gain, texts) for gain in side])
            for title, side in zip(("Most helped", "Most hurt"), most_changed(of_queries), strict=True)
        ]
    figures = [_figure(name, results, experiment) for name in charts]
    return ExperimentSection(experiment.name, description, figures, sides, of_queries.queries if of_queries else [])


def _description(results: Results, experiment: ExperimentResults) -> str:
    settings = experiment.settings
    finished = ", ".join(fold.name for fold in experiment.folds if fold.run)
    loss = ", ".join(str(value) for value in settings.get("loss", {}).values())
    encoder = Path(settings.get("encoder", {}).get("name", "")).name
    model = f"Hidden units: {settings['network']['hidden']}" if experiment.has_features else f"Encoder: {encoder}"
    queries = len(results.judged(experiment.run))
    return f"Loss: {loss}. {model}. Finished folds: {finished}, with {queries} judged queries."


def _figure(name: str, results: Results, *experiment: Compared) -> Figure:
    title, caption = CHARTS[name].title, CHARTS[name].caption
    names = [e.name for e in results.experiments]
    key = "-".join([name, *(str(names.index(e.name)) for e in experiment)])
    label = ", ".join([title, *(e.name for e in experiment)])
    return Figure(title, caption, or_missing(lambda: inline_svg(chart_figure(name, results, *experiment), key, label)))
