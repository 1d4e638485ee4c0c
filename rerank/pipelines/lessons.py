"""What teaches a bi-encoder: lists of a relevant document and hard negatives of an input ranking, as texts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rerank.batches.sampling import epoch_lists
from rerank.data.collections import Collection
from rerank.data.embeddings import EmbeddingStore, units
from rerank.data.types import Candidates, Qrels, Run
from rerank.experiments.mine import Mining, negatives_of
from rerank.models.bi_encoder import BiEncoder
from rerank.training.contrastive import to_batches


@dataclass(frozen=True)
class Lessons:
    """The lists of all epochs, in the order of the steps, and the indices of the lists of each step."""

    lists: Sequence[Candidates]
    batches: Sequence[Sequence[int]]


def trainable_lists(
    texts: Collection, judged: Qrels, documents: EmbeddingStore, ranking: Run, depth: int
) -> list[Candidates]:
    """The relevant documents of each judged query, and the documents of its ranking that may be negatives.

    `depth` documents of the ranking are looked at; one that is judged relevant, or is a near-duplicate of such a
    document, is no negative. A document without a vector in `documents` has no text, and is left out, as is a query
    without a relevant document or without a negative.
    """
    mining, found = Mining(last=depth), []
    for query_id, grades in judged.items():
        relevant = [doc_id for doc_id, grade in grades.items() if grade > 0 and doc_id in documents.ids]
        ranked_high, _ = negatives_of(texts, grades, ranking.get(query_id, {}), mining) if relevant else ([], 0)
        if negatives := [doc_id for doc_id in ranked_high if doc_id in documents.ids]:
            labels = (1,) * len(relevant) + (0,) * len(negatives)
            found.append(Candidates(query_id, (*relevant, *negatives), labels))
    return found


def draw_lessons(
    trainable: Sequence[Candidates], epochs: int, lists_per_epoch: int, lists_per_step: int, negatives: int, seed: int
) -> Lessons:
    """The lists of all epochs: a relevant document of a query, drawn at random, and then `negatives` others.

    Queries come in rounds, as in every training. A query with fewer negatives repeats them.
    """
    relevant = {
        found.query_id: {doc_id for doc_id, label in zip(found.doc_ids, found.labels, strict=True) if label}
        for found in trainable
    }
    lists, batches = list[Candidates](), list[list[int]]()
    for epoch in range(epochs if trainable else 0):
        drawn = [
            _relevant_first(found, negatives)
            for found in epoch_lists(trainable, epoch, lists_per_epoch, 1, negatives, seed)
        ]
        batches += [[len(lists) + place for place in batch] for batch in to_batches(drawn, lists_per_step, relevant)]
        lists += drawn
    return Lessons(lists, batches)


def _relevant_first(found: Candidates, negatives: int) -> Candidates:
    place = found.labels.index(1)
    others = [doc_id for other, doc_id in enumerate(found.doc_ids) if other != place]
    chosen = [others[number % len(others)] for number in range(negatives)]
    return Candidates(found.query_id, (found.doc_ids[place], *chosen), (1,) + (0,) * negatives)


def as_texts(
    lists: Sequence[Candidates],
    texts: Collection,
    queries: Mapping[str, str],
    best_passage: Callable[[str, str, str], str],
) -> list[tuple[str, ...]]:
    """The text of the query, and a passage of each document, of each list.

    `best_passage` takes the ids of a query and of a document, and the document's text.
    """
    doc_ids = list(dict.fromkeys(doc_id for found in lists for doc_id in found.doc_ids))
    text_of = {document.doc_id: document.text for document in texts.get(doc_ids)}
    return [
        (queries[found.query_id], *(best_passage(found.query_id, doc_id, text_of[doc_id]) for doc_id in found.doc_ids))
        for found in lists
    ]


def passage_by(
    encoder: BiEncoder, documents: EmbeddingStore, vectors: Mapping[str, np.ndarray]
) -> Callable[[str, str, str], str]:
    """The `best_passage` of `as_texts`: the passage most similar to the query by a bi-encoder.

    `documents` has the vectors of all documents, and `vectors` those of the queries.
    """
    passages: dict[str, list[str]] = {}

    def best_passage(query_id: str, doc_id: str, text: str) -> str:
        if doc_id not in passages:
            passages[doc_id] = encoder.split(text)
        found = passages[doc_id]
        if len(found) < 2:
            return text
        of_document = documents.vectors_of(documents.ids[doc_id])
        if documents.cosine:
            of_document = units(of_document)
        return found[int((of_document @ vectors[query_id]).argmax())]

    return best_passage
