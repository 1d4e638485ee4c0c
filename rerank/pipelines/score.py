"""`rerank score` with a fitted pipeline: ranks queries and writes the run."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from rerank.config import Config
from rerank.data.queries import read_queries
from rerank.data.trec import lines_of_query, new_file
from rerank.data.types import Run
from rerank.experiments.runs.manifest import manifest_of, tag_of, write_manifest
from rerank.pipelines.fitted import Fitted
from rerank.pipelines.open import load_beside
from rerank.retrieval.bm25 import log_unanswered
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash
from rerank.utils.progress import log, progress

QUERIES_AT_ONCE = 64
"""Queries that are ranked together, which bounds the memory."""


def score_queries(config: Config, folder: Path, out: Path) -> Path:
    """Ranks the queries of `--collection.queries`, or of the collection, and writes the run and its manifest.

    Raises UserError for a pipeline that cannot be opened, if no document is found, and if `out` cannot be written.
    """
    manifest, tag, settings = manifest_of(out), tag_of(out), config.collection
    fitted = load_beside(config, folder, ("collection.queries", "collection.query_field"))
    if settings.query_field and not settings.queries:
        raise UserError(
            f"--collection.query-field {settings.query_field}: {folder} takes the queries as they were at the fit; "
            "name a file of queries with --collection.queries"
        )
    collection = fitted.world.collection
    queries = read_queries(settings.queries, fields=settings.query_fields) if settings.queries else collection.queries
    if taught := count_taught(fitted, queries):
        log.info(
            f"{taught} of {len(queries)} queries trained the pipeline, so this run does not say how good the "
            f"pipeline is; `rerank report {folder}` does"
        )
    unanswered = 0
    with new_file(out) as lines:
        for chunk, runs in rank_each(fitted, queries):
            run = runs[fitted.answer]
            for query_id in chunk:
                if run.get(query_id):
                    lines.write(lines_of_query(out, query_id, run[query_id], tag).encode())
                else:
                    unanswered += 1
        if unanswered == len(queries):
            raise UserError(
                f"{folder}: finds no document for any of the {len(queries)} queries; expected queries on its "
                f"collection, {collection.source}"
            )
    facts = {"pipeline_folder": str(folder), "queries": len(queries), "run": {"sha256": file_hash(out)}}
    write_manifest(manifest, facts)
    log_unanswered(unanswered, len(queries))
    return out


def rank_judged(folder: Path, config: Config) -> Run:
    """The run of a fitted pipeline for the judged queries of its collection.

    The settings have the collection and its index, the folder of results, and the seed, for what is made of the run.
    Raises UserError if others are changed, as a pipeline has its own.
    """
    own = replace(config, collection=replace(config.collection, source=""))
    fitted = load_beside(own, folder, ("first_stage.index", "output.folder", "training.seed"))
    collection, run = fitted.world.collection, Run()
    judged = {query_id: text for query_id, text in collection.queries.items() if collection.qrels.get(query_id)}
    for _, runs in rank_each(fitted, judged):
        run |= runs[fitted.answer]
    return run


def count_taught(fitted: Fitted, queries: Mapping[str, str]) -> int:
    """The number of these queries, by id and text, whose judgments a stage of the pipeline has learned from."""
    if all(settings.learns == "nothing" for settings in fitted.stages.values()):
        return 0
    collection = fitted.world.collection
    return sum(bool(collection.qrels.get(q)) and collection.queries.get(q) == text for q, text in queries.items())


def rank_each(fitted: Fitted, queries: Mapping[str, str]) -> Iterator[tuple[dict[str, str], dict[str, Run]]]:
    """Yields some of the queries with the run of each stage for them, until all are ranked."""
    left = iter(progress(queries.items(), len(queries), "ranking"))
    while chunk := dict(itertools.islice(left, QUERIES_AT_ONCE)):
        yield chunk, fitted.rank_all(chunk)
