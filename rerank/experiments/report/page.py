"""`rerank report`: writes an HTML page about experiments or run files, from report.html and report.css."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Literal

from rerank.config import CollectionSettings, Config, sections
from rerank.config.languages import ENGLISH
from rerank.data.collections import Collection, open_collection
from rerank.evaluation.compare import Comparison
from rerank.evaluation.tables import Table
from rerank.experiments.report.drawing import inline_svg
from rerank.experiments.report.elements import Figure, Missing, Rows, or_missing, origin_rows, render_page
from rerank.experiments.report.plot import CHARTS, DEPTH, LEARNING, Gain, chart_figure, gains, logged_folds
from rerank.experiments.report.queries import Texts, documents_of, most_changed, read_documents, shown_documents
from rerank.experiments.runs.experiment_results import ExperimentResults, FoldEpoch, FoldResults
from rerank.experiments.runs.manifest import FoldManifest
from rerank.experiments.runs.results import Compared, Results, compared_with_first, open_results
from rerank.experiments.runs.run_files import RunFiles, are_run_files, compare_files, expect_not_given
from rerank.experiments.runs.settings import differences
from rerank.utils.errors import UserError
from rerank.utils.files import check_output, write_text
from rerank.utils.progress import log


def write_report(
    paths: Sequence[Path], out: Path | None, measure: str, qrels: Path | None = None, collection: str = ""
) -> Path:
    """Writes the page of runs/<collection>, of an experiment in it, or of run files; returns the file.

    Run files are compared with the first one; `qrels` are their judgments, and `collection`, if given, has their texts.
    The default `out` is report.html in the folder, or in the working directory for run files. Raises UserError if no
    fold is finished, a file is wrong, or `out` cannot be written.
    """
    of_files = are_run_files(paths)
    out = out or Path("" if of_files else paths[0]) / "report.html"
    check_output(out)
    if of_files:
        page = page_of_files(RunFiles.read(paths), measure, qrels, collection)
    else:
        expect_not_given(paths[0], {"--qrels": qrels, "--collection": collection})
        page = page_of_experiments(open_results(paths[0], measure))
    write_text(out, page)
    return out


def page_of_experiments(results: Results[ExperimentResults]) -> str:
    experiments, first = results.experiments, results.experiments[0]
    collection, missing = None, ""
    try:
        opened = _collection_of(first)
        results, collection = replace(results, queries=opened.queries), opened
    except UserError as error:
        missing = str(error)
    finished = [experiment for experiment in experiments if experiment.folder.all_run.is_file()]
    return _render(
        results,
        collection,
        Texts({}, str(first.setting("collection.language") or ENGLISH), missing),
        charts=("learning", "gain"),
        descriptions=[_description(results, experiment) for experiment in experiments],
        name=first.folder.collection.path.resolve().name,
        settings=[_settings(experiment) for experiment in experiments],
        unfinished=[experiment.name for experiment in experiments if experiment not in finished],
        cost=cost_table(experiments),
        **_tables(_comparison(finished) if finished else None),
    )


def _collection_of(experiment: ExperimentResults) -> Collection:
    """The collection of an experiment. Raises UserError if it cannot be opened, and for feature vectors."""
    if experiment.has_features:
        raise UserError("feature vectors have none")
    source, queries, field = (
        str(experiment.setting(f"collection.{key}") or "") for key in ("source", "queries", "query_field")
    )
    settings = CollectionSettings(source=source, queries=queries, query_field=field)
    return open_collection(settings.source, settings.queries, settings.query_fields)


def page_of_files(files: RunFiles, measure: str, qrels: Path | None, source: str) -> str:
    """The page of run files, which has no settings, times or learning curves."""
    results = compared_with_first(files, qrels, measure)
    collection = open_collection(source) if source else None
    if collection:
        results = replace(results, queries=collection.queries)
    return _render(
        results,
        collection,
        Texts({}, ENGLISH, "" if source else "no --collection is named"),
        charts=("gain",),
        descriptions=[f"Compared with {next(iter(files.runs))}."] * len(results.experiments),
        name=", ".join(files.runs),
        settings=[None] * len(results.experiments),
        unfinished=[],
        cost=None,
        **_tables(compare_files(files, results.qrels_file)),
    )


def _render(
    results: Results,
    collection: Collection | None,
    texts: Texts,
    charts: Sequence[str],
    descriptions: Sequence[str],
    settings: Sequence[Rows | None],
    **variables: object,
) -> str:
    """Renders the page; reads the shown documents from the collection, if there is one."""
    compared = [experiment for experiment in results.experiments if experiment.first_stage]
    query_gains = {experiment.name: gains(results, experiment) for experiment in compared}
    changed = {name: most_changed(of_run) for name, of_run in query_gains.items()}
    if collection:
        shown = {doc_id for one in compared for doc_id in _shown_by(one, changed[one.name])}
        texts = read_documents(collection, sorted(shown), texts.language, results.experiments[0])
    if texts.reason:
        log.info(f"no texts: {texts.reason}")
    sections = []
    for experiment, description, own in zip(results.experiments, descriptions, settings, strict=True):
        sides = changed.get(experiment.name, {}).items()  # none if the first stage's run is missing
        section = {
            "name": experiment.name,
            "description": description,
            "settings": own,
            "figures": [_figure(name, results, experiment) for name in charts],
            "changed": {
                title: [(g, documents_of(results, experiment, g, texts)) for g in side] for title, side in sides
            },
            "gains": query_gains.get(experiment.name, []),
        }
        sections.append(section)
    return render_page(
        "report.html",
        measure=results.measure,
        texts_missing=texts.reason,
        absent=[or_missing(e.candidates) for e in results.experiments if not e.first_stage],
        figures=[_figure(DEPTH, results)] if compared else [],
        experiments=sections,
        **variables,
    )


def _shown_by(experiment: Compared, changed: Mapping[str, Sequence[Gain]]) -> Iterator[str]:
    """The documents of the most changed queries, which the section of an experiment shows."""
    for query in chain(*changed.values()):
        yield from shown_documents(experiment, query.query_id)


def _tables(comparison: Comparison | None) -> dict[str, Table | None]:
    """The summary and, for several runs, the details of a comparison."""
    details = comparison.table(details=True) if comparison and len(comparison.measurements) > 1 else None
    return {"summary": comparison.table() if comparison else None, "details": details}


def _comparison(experiments: Sequence[ExperimentResults]) -> Comparison:
    """The comparison of `rerank eval`: first stages, then the experiments."""
    collection = experiments[0].folder.collection
    first = [experiment.first_stage_file for experiment in experiments if experiment.first_stage]
    runs = [experiment.folder.all_run for experiment in experiments]
    folds = collection.folds if collection.folds.is_file() else None
    return compare_files([*dict.fromkeys(first), *runs], collection.qrels, folds)


def _settings(experiment: ExperimentResults) -> Rows:
    """The settings that differ from the defaults, the seed, and when and with which versions the folds were trained."""
    changed = differences(sections(Config()), experiment.settings)
    rows: list[list[object]] = [[key, now] for key, (_, now) in changed.items()]
    rows += [["training.seed", experiment.setting("training.seed")]] if "training.seed" not in changed else []
    known = [(fold.facts.get("versions", {}), fold.folder.manifest) for fold in experiment.folds if fold.facts]
    origin = origin_rows(known[0][0], [manifest for _, manifest in known]) if known else []
    return Rows(("setting", "value"), [*rows, *origin])


def _description(results: Results, experiment: ExperimentResults) -> str:
    finished = ", ".join(fold.name for fold in experiment.folds if fold.run)
    values = dict(experiment.settings.get("loss", {}))
    loss = ", ".join(
        [str(values.pop("name", Config().loss.name)), *(f"{key} {value}" for key, value in values.items())]
    )
    encoder = Path(str(experiment.setting("encoder.name") or "")).name
    hidden = experiment.setting("network.hidden")
    model = f"Hidden units: {hidden}" if experiment.has_features else f"Encoder: {encoder}"
    queries = len(results.judged(experiment.run))
    return f"Loss: {loss}. {model}. Finished folds: {finished}, with {queries} judged queries."


def _figure(name: str, results: Results, *experiment: Compared) -> Figure:
    title, caption = CHARTS[name].title, CHARTS[name].caption
    names = [e.name for e in results.experiments]
    key = "-".join([name, *(str(names.index(e.name)) for e in experiment)])
    label = ", ".join([title, *(e.name for e in experiment)])

    def draw() -> str:
        if name == LEARNING:
            _expect_a_curve(*experiment)
        return inline_svg(chart_figure(name, results, *experiment), key, label)

    return Figure(title, caption, or_missing(draw))


def _expect_a_curve(*experiments: Compared) -> None:
    """Raises UserError if no fold of the experiments has two epochs."""
    folds = [fold for one in experiments if isinstance(one, ExperimentResults) for fold in logged_folds(one)]
    if all(len(fold.history) == 1 for fold in folds):
        raise UserError("one epoch a fold is no curve; the table of folds has its values")


def cost_table(experiments: Sequence[ExperimentResults]) -> Rows | Missing:
    """A row per finished fold: epochs, validation, time, speed and memory, from the log and the manifest."""
    named = [str(measure) for experiment in experiments if (measure := experiment.setting("training.measure"))]
    measure = named[0] if len(set(named)) == 1 else "each run's measure"
    measure = "negated loss" if measure == "loss" else measure
    costs = {
        f"{experiment.name}, fold {fold.name}": _cost(fold, fold.facts, measure)
        for experiment in experiments
        for fold in experiment.folds
        if fold.facts
    }
    if not costs:
        return Missing("no fold has a manifest with its time and memory")
    return Rows(["run", *next(iter(costs.values()))], [[name, *cost.values()] for name, cost in costs.items()])


def _cost(fold: FoldResults, facts: FoldManifest, measure: str) -> dict[str, object]:
    seconds, memory, precision = facts.get("seconds"), facts.get("peak_memory"), facts.get("precision", "–")
    return {
        "epochs": facts.get("epochs", "–"),
        "kept": facts.get("best_epoch", "–"),
        f"validation ({measure})": _value(fold.kept["valid"] if fold.history else None),
        "first stage": _value(fold.first_stage),
        "minutes": "–" if seconds is None else f"{seconds / 60:.1f}",
        "tokens/s": _rate(fold.history, "tokens"),
        "documents/s": _rate(fold.history, "documents"),
        "peak memory": f"{memory / 2**30:.2f} GiB" if memory else "–",
        "device": facts.get("device_name", facts.get("device", "–")),
        "precision": "float32" if precision == "no" else precision,
        "processes": facts.get("processes", "–"),
    }


def _value(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _rate(history: list[FoldEpoch], what: Literal["tokens", "documents"]) -> str:
    """Units per second of training, over all epochs that recorded them."""
    timed = [record for record in history if what in record and "seconds" in record]
    seconds = sum(record["seconds"] for record in timed)
    return f"{sum(record[what] for record in timed) / seconds:,.0f}" if seconds else "–"
