"""`rerank eval` with a fitted pipeline: ranks queries that it has not seen, and compares it with its first stage."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rerank.data.queries import read_queries
from rerank.data.runs import read_qrels
from rerank.data.types import Run
from rerank.evaluation.compare import Comparison, compare
from rerank.evaluation.measures import DEFAULT_MEASURES, measure_names
from rerank.pipelines.folder import load_fitted
from rerank.pipelines.score import count_taught, rank_each
from rerank.utils.errors import UserError


def compare_with_first_stage(
    folder: Path, queries: Path | None = None, qrels: Path | None = None, measures: Iterable[str] = ()
) -> Comparison:
    """Ranks the judged queries by the first stage of a pipeline and by the stage that answers.

    `queries` is a file of queries and `qrels` a file of judgments; the defaults are those of the pipeline's collection.
    A note counts the queries that trained the pipeline. Raises UserError for a pipeline that cannot be opened, a
    malformed file, and if no query is judged.
    """
    names = measure_names(measures or DEFAULT_MEASURES)
    own_texts = read_queries(queries) if queries else None  # before the pipeline, which takes seconds to open
    own_judgments = read_qrels(qrels) if qrels else None
    fitted = load_fitted(folder)
    collection = fitted.world.collection
    texts = collection.queries if own_texts is None else own_texts
    judgments = collection.qrels if own_judgments is None else own_judgments
    asked = {query_id: text for query_id, text in texts.items() if judgments.get(query_id)}
    if not asked:
        raise UserError(
            f"{queries or collection.source}: none of its {len(texts)} queries is judged in "
            f"{qrels or collection.source}; expected judgments of these queries"
        )
    stages = dict.fromkeys((next(iter(fitted.stages)), fitted.answer))
    runs: dict[str, Run] = {name: {} for name in stages}
    for _, found in rank_each(fitted, asked):
        for name in stages:
            runs[name] |= found[name]
    comparison = compare(runs, {query_id: judgments[query_id] for query_id in asked}, names)
    notes = list(comparison.notes)
    if taught := count_taught(fitted, asked):
        notes.append(
            f"{taught} of {len(asked)} queries trained the pipeline: for them these values are no evidence; "
            f"`rerank report {folder}` has values of queries that did not."
        )
    if lacking := [query_id for query_id, grades in judgments.items() if grades and query_id not in texts]:
        notes.append(f"{len(lacking)} judged queries have no text and are left out: {', '.join(lacking[:3])}.")
    return replace(comparison, notes=notes)
