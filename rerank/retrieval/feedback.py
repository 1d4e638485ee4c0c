"""Pseudo-relevance feedback for a bi-encoder: a query's vector moves towards the best documents of an earlier run.

Rocchio, "Relevance feedback in information retrieval", 1971, without negative documents; with the vectors of a
bi-encoder: Li et al., "Pseudo Relevance Feedback with Deep Language Models and Dense Retrievers", TOIS 2023.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rerank.data.embeddings import EmbeddingStore
from rerank.data.trec import examples
from rerank.data.trec_arrays import read_run_arrays
from rerank.utils.errors import UserError
from rerank.utils.progress import log

DOCUMENTS = 3
"""Documents of a query that are taken as relevant."""


def read_feedback(file: Path, query_ids: Mapping[str, object], documents: EmbeddingStore) -> dict[str, list[int]]:
    """query_id -> the numbers of the best `DOCUMENTS` documents of a run, those without a vector left out.

    Queries that have none are not in it; they are counted in the log. Raises UserError if the run is missing or
    malformed, or has none of the queries or of the documents.
    """
    run = read_run_arrays(file, DOCUMENTS, query_ids)
    best = {query_id: run[query_id] for query_id in query_ids if query_id in run}
    if not best:
        raise UserError(
            f"{file}: has none of the {len(query_ids)} queries ({examples(query_ids)}); expected a run of them for "
            "--first-stage.feedback"
        )
    wanted = dict.fromkeys(doc_id for doc_ids in best.values() for doc_id in doc_ids)
    numbers = documents.numbers(wanted)
    if not numbers:
        raise UserError(
            f"{file}: none of its documents ({examples(wanted)}) is one of the collection's with text; expected a run "
            "of this collection for --first-stage.feedback"
        )
    found = {
        query_id: [numbers[doc_id] for doc_id in doc_ids if doc_id in numbers] for query_id, doc_ids in best.items()
    }
    feedback = {query_id: some for query_id, some in found.items() if some}
    if without := len(query_ids) - len(feedback):
        log.info(f"{without} of {len(query_ids)} queries have no document in {file}, and are searched without feedback")
    return feedback


def add_feedback(
    queries: Mapping[str, np.ndarray], feedback: Mapping[str, list[int]], documents: EmbeddingStore
) -> dict[str, np.ndarray]:
    """query_id -> the unit vector of the query plus the mean of those of its documents, as long as the query's.

    A document's vector is the mean of its passages'. queries: query_id to its (dimensions,) vector, which stays as it
    is for a query without feedback.
    """
    moved = dict(queries)
    for query_id in queries.keys() & feedback.keys():
        query = queries[query_id]
        means = [_unit(documents.vectors_of(number).mean(0)) for number in feedback[query_id]]
        vector = _unit(_unit(query) + np.mean(means, axis=0)) * np.linalg.norm(query)
        moved[query_id] = vector.astype(np.float32)
    return moved


def _unit(vector: np.ndarray) -> np.ndarray:
    unit: np.ndarray = vector / (np.linalg.norm(vector) or 1.0)
    return unit
