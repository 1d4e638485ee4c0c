"""`rerank report`: a folder of runs -> one HTML file that holds everything it shows."""

from collections.abc import Callable
from pathlib import Path

from rerank.errors import UserError
from rerank.reports.charts.drawing import inline_svg
from rerank.reports.charts.gain import Gains, gains
from rerank.reports.charts.plot import chart_figure
from rerank.reports.html.elements import Html, details, escaped, join, missing, section, table, tag
from rerank.reports.html.movement import cut_table, judged_table, length_table, movement_table
from rerank.reports.html.provenance import cost_table, origin_tables, settings_tables
from rerank.reports.html.queries import most_changed, query_details, shown_documents
from rerank.reports.html.scoreboard import scoreboard
from rerank.reports.html.style import CSS
from rerank.reports.html.texts import Texts, open_queries, read_documents
from rerank.reports.html.upper_bounds import upper_bound_table
from rerank.runs.experiment_results import ExperimentResults
from rerank.runs.results import CollectionResults, read_results
from rerank.utils.files import atomic_write
from rerank.utils.progress import log

CHARTS = {
    "learning": ("Learning curves", "Every fold, epoch by epoch."),
    "gain": ("Gain of every query", "A bar is a query; its text shows where the pointer rests."),
    "scores": ("Scores", "What the model gives to relevant documents and to others, over the queries of all folds."),
    "reliability": ("Smooth against true NDCG", "SmoothI's NDCG of the lists that were trained on, and the exact one."),
    "length": ("By length", "Where relevant documents stand before and after, by how long they are."),
    "depth": (
        "Measure against depth",
        "Only the first documents of the first stage re-ranked, the others left behind.",
    ),
    "judged": ("Judged documents", "The share of documents that have a judgment, from rank 1 down."),
}
"""The title and the caption of each chart."""


def write_report(folder: Path | str, out: Path | str | None = None, measure: str = "nDCG@20") -> Path:
    """Writes the page of runs/<collection>, or of an experiment in it, and returns the file.

    `out` is report.html in the folder by default. Raises UserError if no fold is finished, or `out` cannot be written.
    """
    results = read_results(Path(folder), measure)
    out = Path(out) if out else Path(folder) / "report.html"
    with atomic_write(out) as tmp:
        tmp.write_text(page(results), encoding="utf-8")
    return out


def page(results: CollectionResults) -> str:
    """The whole page."""
    queries, collection, reason = open_queries(results)
    results.queries.update(queries)
    changed = {e.name: gains(results, e) for e in results.experiments if e.first_stage}
    texts = Texts(queries, {}, reason)
    if collection:
        shown = [
            document.doc_id
            for experiment in results.experiments
            if experiment.name in changed
            for side in most_changed(changed[experiment.name])
            for query in side
            for document in shown_documents(results, experiment, query.query_id)
        ]
        texts = read_documents(results, collection, shown)
    if texts.reason:
        log.info(f"no texts: {texts.reason}")
    parts = [
        section("table", "Results", scoreboard(results)),
        section("possible", "What re-ranking could and did do", *_possible(results)),
        *(_experiment(results, experiment, changed.get(experiment.name), texts) for experiment in results.experiments),
        section("cost", "Time, speed, memory", cost_table(results.experiments)),
        section(
            "settings", "Settings, versions, seeds, hashes",
            settings_tables(results.experiments), origin_tables(results.experiments),
        ),
    ]  # fmt: skip
    return _document(results, texts, parts)


def _document(results: CollectionResults, texts: Texts, parts: list[Html]) -> str:
    name = results.folder.path.resolve().name
    anchors = {"table": "Results", "possible": "Could and did"}
    anchors |= {f"run-{number}": experiment.name for number, experiment in enumerate(results.experiments)}
    anchors |= {"cost": "Time and memory", "settings": "Settings"}
    nav = tag("nav", *(tag("a", title, href=f"#{anchor}") for anchor, title in anchors.items()))
    notes = [f"Charts and queries show {results.measure}."]
    notes += (
        [f"The texts of queries or documents are not available, so ids are shown: {texts.reason}"]
        if texts.reason
        else []
    )
    head = join([
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", f"{name}: re-ranking"), tag("style", Html(CSS)),
    ])  # fmt: skip
    body = [tag("h1", name), nav, *(tag("p", note, class_="quiet") for note in notes), *parts]
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{join(body, Html(chr(10)))}</body></html>\n'


def _possible(results: CollectionResults) -> list[Html]:
    groups: dict[str, list[ExperimentResults]] = {}
    absent = []
    for experiment in results.experiments:
        if experiment.first_stage:
            groups.setdefault(results.first_stage_name(experiment), []).append(experiment)
        else:
            absent.append(_or_reason(experiment.candidates))
    known = [experiment for group in groups.values() for experiment in group]
    parts: list[Html] = []
    if known:
        parts = [
            *(_or_reason(upper_bound_table, results, group) for group in groups.values()),
            tag("div", _chart("depth", results), _chart("judged", results), class_="charts"),
            tag("h3", "How far documents moved"), _or_reason(movement_table, known),
            tag("h3", "Judged documents"), _or_reason(judged_table, results),
        ]  # fmt: skip
    cut = [tag("h3", "What was cut, and long documents"), cut_table(results.experiments), length_table(results, known)]
    return [*absent, *parts, *cut]


def _experiment(results: CollectionResults, experiment: ExperimentResults, changed: Gains | None, texts: Texts) -> Html:
    number = results.experiments.index(experiment)
    figures = [_chart(name, results, experiment) for name in ("learning", "gain", "scores", "reliability", "length")]
    parts: list[Html] = [tag("p", _made_by(results, experiment), class_="quiet"), tag("div", *figures, class_="charts")]
    if changed:
        for title, side in zip(("Most helped", "Most hurt"), most_changed(changed), strict=True):
            queries = [query_details(results, experiment, query, texts) for query in side]
            parts += [tag("h3", title), *(queries or [tag("p", "No query.", class_="quiet")])]
        rows = [
            [t.query_id, f"{t.before:.4f}", f"{t.after:.4f}", f"{t.gain:+.4f}", tag("div", t.text, class_="text")]
            for t in changed.queries
        ]
        parts.append(details("Every query", table(["query", "before", "after", "change", "text"], rows)))
    return section(f"run-{number}", experiment.name, *parts)


def _made_by(results: CollectionResults, experiment: ExperimentResults) -> str:
    tables = experiment.settings
    finished = ", ".join(fold.name for fold in experiment.folds if fold.run)
    loss = ", ".join(str(value) for value in tables.get("loss", {}).values())
    encoder = Path(tables.get("encoder", {}).get("name", "")).name
    model = f"Hidden units: {tables['network']['hidden']}" if experiment.has_features else f"Encoder: {encoder}"
    queries = len(results.judged(experiment.run))
    return f"Loss: {loss}. {model}. Finished folds: {finished}, with {queries} judged queries."


def _chart(name: str, results: CollectionResults, *experiment: ExperimentResults) -> Html:
    title, caption = CHARTS[name]
    key = "-".join([name, *(str(results.experiments.index(e)) for e in experiment)])
    label = ", ".join([title, *(e.name for e in experiment)])

    def drawing() -> Html:
        return Html(inline_svg(chart_figure(name, results, *experiment), key, label))

    return tag("figure", tag("h3", title), _or_reason(drawing), tag("figcaption", caption))


def _or_reason(make: Callable[..., object], *arguments: object) -> Html:
    """What `make` gives for the page, or the line that says why it cannot be there."""
    try:
        return escaped(make(*arguments))
    except UserError as error:
        return missing(error)
