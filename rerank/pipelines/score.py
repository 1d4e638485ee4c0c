"""`rerank score` with a fitted pipeline: ranks queries and writes the run."""

import itertools
from pathlib import Path

from rerank.config import Config
from rerank.data.text_lines import read_queries
from rerank.data.trec import lines_of_query, new_file
from rerank.experiments.runs.manifest import manifest_of, tag_of, write_manifest
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
    fitted = load_beside(config, folder, ("collection.queries",))
    collection = fitted.world.collection
    queries = read_queries(settings.queries) if settings.queries else collection.queries
    learns = any(settings.learns != "nothing" for settings in fitted.stages.values())
    qrels = collection.qrels if learns else {}
    taught = sum(bool(qrels.get(q)) and collection.queries.get(q) == text for q, text in queries.items())
    if taught:
        log.info(
            f"{taught} of {len(queries)} queries trained the pipeline, so this run is no evidence of its quality; "
            f"`rerank report {folder}` shows it"
        )
    unanswered = 0
    with new_file(out) as lines:
        left = iter(progress(queries.items(), len(queries), "ranking"))
        while chunk := dict(itertools.islice(left, QUERIES_AT_ONCE)):
            run = fitted.rank_all(chunk)[fitted.answer]
            for query_id in chunk:
                if run.get(query_id):
                    lines.write(lines_of_query(out, query_id, run[query_id], tag).encode())
                else:
                    unanswered += 1
        if unanswered == len(queries):
            raise UserError(f"{folder}: finds no document for any of the {len(queries)} queries")
    facts = {"pipeline_folder": str(folder), "queries": len(queries), "run": {"sha256": file_hash(out)}}
    write_manifest(manifest, facts)
    log_unanswered(unanswered, len(queries))
    return out
