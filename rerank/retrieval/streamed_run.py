"""BM25's run file, written query by query: memory does not grow, and an interrupted command goes on."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rerank.config.languages import ENGLISH
from rerank.data.trec import lines_of_query
from rerank.retrieval.bm25 import NAMED, log_unanswered, search_each
from rerank.retrieval.lucene_index import index_identity
from rerank.utils.files import short_hash, short_hash_of
from rerank.utils.resumable import resumable
from rerank.utils.temporary import remove

RUN, TAG = "run", "Anserini"


class WrittenRun(NamedTuple):
    """A run: its queries that have candidates, its candidates, and its file's size and hash (`utils.integrity`)."""

    queries: int
    candidates: int
    facts: dict[str, Any]


@contextlib.contextmanager
def write_bm25(
    file: Path,
    index: Path,
    queries: Mapping[str, str],
    depth: int,
    k1: float,
    b: float,
    threads: int | None = None,
    language: str = ENGLISH,
) -> Iterator[WrittenRun]:
    """Writes the run of `rerank.retrieval.bm25.search`, byte for byte what `write_run` writes of it, as found.

    Yields when the run is whole; after the block, which refuses one without candidates, it becomes `file`. A command
    that was interrupted goes on behind its last query, if index, queries and settings are the same. Raises UserError as
    `search`, and if the disk is full. The caller holds a lock.
    """
    work = short_hash(index_identity(index), depth, k1, b, language, short_hash_of(queries.items()))
    with resumable(file, (RUN,), work) as unfinished:
        counts: dict[str, Any] = {"candidates": 0, "unanswered": 0, "first_unanswered": []} | unfinished.facts
        unfinished.facts = counts
        with contextlib.closing(search_each(index, queries, depth, k1, b, threads, language, unfinished.done)) as found:
            for query_id, scores in found:
                if scores:
                    unfinished.files[RUN].write(lines_of_query(file, query_id, scores, TAG, as_found=True).encode())
                    counts["candidates"] += len(scores)
                else:
                    counts["unanswered"] += 1
                    counts["first_unanswered"] = [*counts["first_unanswered"], query_id][:NAMED]
                unfinished.finish_item()
        facts = unfinished.record()[RUN]
    log_unanswered(counts["first_unanswered"], counts["unanswered"], len(queries))
    if not counts["candidates"]:
        remove(unfinished.folder)
    yield WrittenRun(len(queries) - counts["unanswered"], counts["candidates"], facts)
    os.replace(unfinished.folder / RUN, file)
    remove(unfinished.folder)
