"""A sample of queries with candidates, on which a model and its graph are compared."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from rerank.data.collections import Collection
from rerank.data.trec import ranked, read_run
from rerank.models.reranker import Reranker
from rerank.utils.errors import UserError

Item = TypeVar("Item")
QUERIES, DOCUMENTS = 16, 20
"""Queries of a sample, and documents of each."""
LONG, CHARACTERS = 800, 1500
"""Characters of a topic of Python's help that is taken, at least, and those that are kept of it."""


class Sample(NamedTuple):
    """Queries with their candidates: query_id -> text, query_id -> doc_id -> text; and the judgments, {} without."""

    name: str
    queries: Mapping[str, str]
    documents: Mapping[str, Mapping[str, str]]
    qrels: Mapping[str, dict[str, int]]

    def score(self, model: Reranker, query_id: str) -> dict[str, float]:
        """The scores of a query's documents, without those of a first stage."""
        texts = self.documents[query_id]
        return dict(zip(texts, model.score(self.queries[query_id], list(texts.values())).tolist(), strict=True))


def sample_of_run(run: Path, collection: Collection) -> Sample:
    """The best documents of some queries of a run; raises UserError if the collection has none of its queries."""
    found = read_run(run)
    known = sorted(query_id for query_id in found if query_id in collection.queries)
    if not known:
        raise UserError(
            f"{run}: {collection.source} has none of its {len(found)} queries; expected a run for this collection"
        )
    queries = {query_id: collection.queries[query_id] for query_id in evenly_spaced(known, QUERIES)}
    documents = {
        query_id: {document.doc_id: document.text for document in collection.get(ranked(found[query_id])[:DOCUMENTS])}
        for query_id in queries
    }
    return Sample(collection.name, queries, documents, {})


def texts_of_python() -> Sample:
    """Texts that every machine has: the topics of Python's `help()`, for a model that is served without a collection.

    A query is the heading of a topic, and its documents are the beginnings of this topic and of the next ones.
    """
    from pydoc_data.topics import topics

    parts = [text.partition("\n***") for _, text in sorted(topics.items())]
    found = [(heading.strip(), body.lstrip("* \n")[:CHARACTERS]) for heading, _, body in parts if len(body) > LONG]
    chosen = evenly_spaced(range(len(found)), QUERIES)
    queries = {str(place): found[place][0] for place in chosen}
    documents = {
        str(place): {str(shift): found[(place + shift) % len(found)][1] for shift in range(DOCUMENTS)}
        for place in chosen
    }
    return Sample("Python's help", queries, documents, {})


def evenly_spaced(items: Sequence[Item], count: int) -> list[Item]:
    """`count` of the items, or all if they are fewer.

    >>> evenly_spaced("abcdefg", 3)
    ['a', 'd', 'g']
    """
    places = np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int)
    return [items[place] for place in places]
