"""The first stage of a bi-encoder (`--first-stage.encoder`): the vectors of all documents, searched exactly."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from rerank.config import Config
from rerank.data.collections import Collection
from rerank.data.embeddings import EmbeddingStore, open_embeddings
from rerank.data.trec import lines_of_query
from rerank.data.types import Run
from rerank.retrieval.bm25 import log_unanswered
from rerank.retrieval.exact_search import search_exactly
from rerank.retrieval.feedback import DOCUMENTS, add_feedback, read_feedback
from rerank.retrieval.streamed_run import WrittenRun
from rerank.runs.layout import CollectionFolder
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.integrity import facts_of
from rerank.utils.json_files import read_json
from rerank.utils.kept_hashes import kept_hash

if TYPE_CHECKING:
    from rerank.models.bi_encoder import BiEncoder

TAG = "dense"
QUERIES_AT_ONCE = 4096
"""Queries whose vectors are in memory."""


class DenseRecord(TypedDict):
    """What the record of a run says of its encoder: its name, the hash of its files, how it makes vectors."""

    encoder: dict[str, Any]


@contextlib.contextmanager
def write_dense(
    config: Config, collection: Collection, folder: CollectionFolder, file: Path, queries: Mapping[str, str]
) -> Iterator[WrittenRun]:
    """Writes the run of the documents whose best passage is most similar to each query.

    Yields when the run is whole; after the block it becomes `file`. Raises UserError if the encoder cannot be opened,
    there is no document with text, or the disk is full; the vectors that were made are kept.
    """
    encoder, documents = open_dense(config, collection, folder)
    answered = candidates = 0
    with atomic_write(file) as tmp:
        with tmp.open("w", encoding="utf-8") as out:
            for query_id, scores in _search(config, encoder, documents, queries):
                out.write(lines_of_query(file, query_id, scores, TAG))
                answered, candidates = answered + 1, candidates + len(scores)
        passages, dimensions = documents.vectors.shape
        about = {"name": encoder.name, "hash": encoder.hash, **encoder.facts()}
        counts = {"documents": len(documents), "passages": passages, "dimensions": dimensions}
        yield WrittenRun(answered, candidates, facts_of(tmp), about | counts | _feedback_facts(config))


def search_dense(config: Config, collection: Collection, folder: CollectionFolder, queries: Mapping[str, str]) -> Run:
    """The best documents of each query that has text. Raises UserError as `write_dense`."""
    encoder, documents = open_dense(config, collection, folder)
    return dict(_search(config, encoder, documents, queries))


def open_dense(config: Config, collection: Collection, folder: CollectionFolder) -> tuple["BiEncoder", EmbeddingStore]:
    """The encoder on its device, and the vectors of the documents, made unless `folder` has them.

    Raises UserError as `write_dense`.
    """
    from rerank.models.bi_encoder import open_bi_encoder  # loads torch
    from rerank.training.device import select_device

    encoder = open_bi_encoder(config.first_stage.encoder, str(select_device(config.training.device)))
    return encoder, open_vectors(encoder, collection, folder)


def open_vectors(encoder: "BiEncoder", collection: Collection, folder: CollectionFolder) -> EmbeddingStore:
    """The vectors of a collection's documents, made unless `folder` has them. Raises UserError as `write_dense`."""
    key = short_hash(collection.fingerprint, encoder.hash, encoder.max_tokens)
    return open_embeddings(folder.embeddings / key, collection.documents, collection.count(), encoder.encode_documents)


def encoder_facts(config: Config, first_stage: Path) -> dict[str, Any]:
    """What the manifest of a fold says of the encoder that retrieved its candidates; {} if none did."""
    if config.first_stage.is_bm25 or config.first_stage.run:
        return {}
    record = read_json(first_stage.with_suffix(".json"), DenseRecord, f"remove it and {first_stage.name}")
    return {"encoder": record["encoder"]}


def expect_encoder(run: Path, recorded: Any, config: Config, again: str) -> None:
    """Raises UserError if a run records other files of the encoder than those of now, or another run of feedback.

    `again` is the end of the message.
    """
    from rerank.models.bi_encoder_files import bi_encoder_hash  # loads torch

    if not isinstance(recorded, dict) or recorded.get("hash") != bi_encoder_hash(config.first_stage.encoder):
        raise UserError(f"{run}: retrieved with other files of the encoder than those of now; {again}")
    if recorded.get("feedback") != _feedback_facts(config).get("feedback"):
        raise UserError(f"{run}: retrieved with another --first-stage.feedback than the run of now; {again}")


def _feedback_facts(config: Config) -> dict[str, Any]:
    """What the record says of the feedback: the hash of its run and the documents of a query; {} if there is none."""
    file = config.first_stage.feedback
    return {"feedback": {"sha256": kept_hash(Path(file)), "documents": DOCUMENTS}} if file else {}


def _search(
    config: Config, encoder: "BiEncoder", documents: EmbeddingStore, queries: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, float]]]:
    settings = config.first_stage
    feedback = read_feedback(Path(settings.feedback), queries, documents) if settings.feedback else {}
    empty = [query_id for query_id, text in queries.items() if not text.strip()]
    log_unanswered(empty, len(empty), len(queries))
    with_text = ((query_id, text) for query_id, text in queries.items() if text.strip())
    while some := dict(itertools.islice(with_text, QUERIES_AT_ONCE)):
        vectors = add_feedback(encoder.encode_queries(some), feedback, documents)
        yield from search_exactly(vectors, documents, settings.depth, encoder.similarity)
