"""`rerank report` for a pipeline's folder: an HTML page with its evidence."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.experiments.report.drawing import INK, SERIES, draw_figure, inline_svg
from rerank.experiments.report.elements import Figure, Missing, Rows, origin_rows, render_page
from rerank.experiments.runs.layout import MANIFEST
from rerank.pipelines.evidence_table import NORMAL, as_table, limits
from rerank.pipelines.folder import PIPELINE, queries_of
from rerank.pipelines.record import (
    EvidenceRecord,
    PipelineFacts,
    PipelineManifest,
    StageRow,
    read_evidence,
    read_pipeline_manifest,
)
from rerank.utils.errors import UserError
from rerank.utils.files import check_output, write_text
from rerank.utils.progress import log

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

SHOWN = 20
"""Most queries in the table of gains, and in that of losses."""

Draw = Callable[["Canvas", Sequence[StageRow], str], None]
"""Draws the measured stages onto a figure; the text is the name of the measure."""


def write_pipeline_report(folder: Path, out: Path | None = None) -> Path:
    """Writes the page of a fitted pipeline and returns the file; the default is <folder>-report.html beside the folder.

    Raises UserError for a folder without evidence, and if `out` cannot be written.
    """
    out = out or folder.parent / f"{folder.name}-report.html"
    check_output(out)
    manifest = read_pipeline_manifest(folder)
    record = read_evidence(folder, manifest)
    if record is None:
        raise UserError(f"{folder}: has no evidence, as it was not made by `rerank fit`; fit the pipeline")
    name = f"{folder.resolve().parent.name}/{folder.resolve().name}"
    figures = [_figure("What each stage reaches", "Mean and 95 % interval.", _draw_ladder, record)]
    figures.append(_figure("Gain against cost", "Milliseconds of a query up to each stage.", _draw_cost, record))
    table = replace(as_table(record), notes=(limits(record),))
    write_text(
        out,
        render_page(
            "pipeline.html",
            name=name,
            table=table,
            figures=figures,
            queries=_queries(record, _texts(folder, manifest["pipeline"])),
            settings=_settings(folder, manifest, record),
            stages=(folder / PIPELINE).read_text(encoding="utf-8", errors="replace"),
        ),
    )
    return out


def _settings(folder: Path, manifest: PipelineManifest, record: EvidenceRecord) -> Rows:
    """What the pipeline was fitted with, and when; the settings of its stages are in its TOML file."""
    inputs = manifest["pipeline"]["inputs"]
    rows: list[tuple[str, object]] = [("measure", record["measure"]), ("parts", record["parts"])]
    if inputs:
        rows += [("seed", inputs["seed"]), ("precision", inputs["precision"]), ("language", inputs["language"])]
    return Rows(("setting", "value"), [*rows, *origin_rows(manifest.get("versions", {}), [folder / MANIFEST])])


def _figure(title: str, caption: str, draw: Draw, record: EvidenceRecord) -> Figure:
    measured = [row for row in record["stages"] if row["mean"] is not None]
    if not measured:
        return Figure(title, caption, Missing("there are too few judgments to measure anything"))
    figure = draw_figure(draw, measured, record["measure"], height=0.8 + 0.4 * len(measured))
    return Figure(title, caption, inline_svg(figure, title.split()[0].lower(), title))


def _draw_ladder(figure: "Canvas", rows: Sequence[StageRow], measure: str) -> None:
    """Draws the mean and its interval for each stage, the first stage at the top."""
    axes = figure.subplots()
    for place, row in enumerate(rows):
        mean, error = row["mean"] or 0.0, NORMAL * (row["se"] or 0.0)
        axes.errorbar([mean], [-place], xerr=[error], fmt="o", color=SERIES[0 if row["kept"] else 1], capsize=2)
    axes.set_yticks([-place for place in range(len(rows))], [row["name"] for row in rows])
    axes.set_xlabel(measure)


def _draw_cost(figure: "Canvas", rows: Sequence[StageRow], measure: str) -> None:
    """Draws the mean of each timed stage against its time."""
    axes = figure.subplots()
    timed = [(row["name"], row["ms"], row["mean"] or 0.0) for row in rows if row["ms"] is not None]
    axes.plot([ms for _, ms, _ in timed], [mean for *_, mean in timed], "o", color=SERIES[0])
    for name, ms, mean in timed:
        axes.annotate(name, (ms, mean), xytext=(4, 4), textcoords="offset points", color=INK)
    axes.set_xlabel("milliseconds a query")
    axes.set_ylabel(measure)


def _texts(folder: Path, facts: PipelineFacts) -> Mapping[str, str]:
    """query_id -> text of the pipeline's collection; {} if it is not on this machine."""
    try:
        return queries_of(folder, facts)
    except UserError as error:
        log.info(f"no texts of queries: {error}")
        return {}


def _queries(record: EvidenceRecord, texts: Mapping[str, str]) -> list[tuple[str, Rows]]:
    """The queries that `nested` helps and hurts most, compared with the first stage."""
    values = record["values"]
    first, answer = record["stages"][0]["name"], record["answer"]
    if first == answer or not values.get(first):
        return []
    gains = sorted(((values["nested"][q] - values[first][q], q) for q in values["nested"]), reverse=True)
    head = ("query", first, "chosen", "gain", "text")
    rows = [
        (q, f"{values[first][q]:.4f}", f"{values['nested'][q]:.4f}", f"{gain:+.4f}", texts.get(q, ""))
        for gain, q in gains
        if gain
    ]
    won = sum(gain > 0 for gain, _ in gains)
    lost = rows[won:][::-1]
    return [("Queries that won", Rows(head, rows[:won][:SHOWN])), ("Queries that lost", Rows(head, lost[:SHOWN]))]
