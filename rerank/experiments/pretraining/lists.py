"""Training lists of pseudo-queries: one relevant document among negatives; and the texts of these documents."""

import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypedDict

from rerank.data.types import Candidates, Document, Run
from rerank.experiments.pretraining.negatives import select_negatives
from rerank.experiments.pretraining.pseudo_queries import (
    Frequencies,
    PseudoQuery,
    Sources,
    parse_variant_id,
    pseudo_query,
    sources_of,
    text_of,
    variant_id,
)
from rerank.utils.files import atomic_write
from rerank.utils.json_files import read_json_lines
from rerank.utils.progress import progress

CHUNK = 256
"""Documents or pseudo-queries that are processed together."""

SPARE = 3
"""Random documents drawn beyond those requested, as some are too short."""

GetDocuments = Callable[[Sequence[str]], Iterator[Document]]
"""Gives documents by their ids, in the order asked for."""


class ListRecord(TypedDict):
    """A line of lists.jsonl."""

    part: Literal["train", "held_out"]
    query_id: str
    kind: str
    query: str
    doc_ids: list[str]
    labels: list[float]


@dataclass(frozen=True)
class PseudoLists:
    """Lists for training and held-out lists, of pseudo-queries and of documents with a part hidden.

    `queries` maps query_id to the text, `kinds` to the kind. The source of a held-out query is in no training list.
    """

    queries: dict[str, str]
    kinds: dict[str, str]
    train: list[Candidates]
    held_out: list[Candidates]

    def variants(self) -> list[str]:
        """The ids of all documents with their hidden parts, each once."""
        return sorted({doc_id for candidates in [*self.train, *self.held_out] for doc_id in candidates.doc_ids})


def usable_documents(
    doc_ids: Sequence[str],
    get: GetDocuments,
    frequencies: Frequencies,
    weights: Mapping[str, float],
    requested: int,
    seed: int,
) -> tuple[list[tuple[Document, Sources]], int]:
    """At least `requested` documents that can make a pseudo-query, if there are so many, in random order.

    Returns them with the number of documents that were examined.
    """
    order = random.Random(seed).sample(sorted(doc_ids), len(doc_ids))
    usable: list[tuple[Document, Sources]] = []
    examined = 0
    while len(usable) < requested and examined < len(order):
        chunk = order[examined : examined + CHUNK]
        for document in get(chunk):
            sources = sources_of(document, frequencies)
            if any(getattr(sources, kind) for kind, weight in weights.items() if weight > 0):
                usable.append((document, sources))
        examined += len(chunk)
    return usable, examined


def pseudo_queries(
    usable: Sequence[tuple[Document, Sources]],
    requested: int,
    weights: Mapping[str, float],
    keep_sentence: float,
    seed: int,
) -> dict[str, PseudoQuery]:
    """The requested number of pseudo-queries by query_id: one per document and turn, in a new order each turn."""
    queries: dict[str, PseudoQuery] = {}
    for turn in count():
        for document, sources in random.Random(f"{seed} {turn}").sample(usable, len(usable)):
            if len(queries) == requested:
                return queries
            query = pseudo_query(document, sources, turn, weights, keep_sentence, seed)
            if query is not None:
                queries[f"{query.kind} {turn} of {document.doc_id}"] = query
    raise AssertionError


def make_lists(
    queries: Mapping[str, PseudoQuery],
    ranked: Run,
    allowed: Sequence[str],
    get: GetDocuments,
    hard_count: int,
    random_count: int,
    seed: int,
) -> list[Candidates]:
    """A list for each pseudo-query: its source, labelled 1, among negatives, labelled 0, in random order.

    `ranked` are BM25's documents of each pseudo-query. Negatives come from `allowed`. A pseudo-query without negatives
    has no list.
    """
    lists = []
    within = set(allowed)
    chunks = [list(queries)[first : first + CHUNK] for first in range(0, len(queries), CHUNK)]
    for chunk in progress(chunks, len(chunks), "lists"):
        rngs = {query_id: random.Random(f"{seed} negatives of {query_id}") for query_id in chunk}
        hard = {query_id: [doc_id for doc_id in ranked.get(query_id, {}) if doc_id in within] for query_id in chunk}
        drawn = min(len(allowed), hard_count + random_count + SPARE)
        others = {query_id: rngs[query_id].sample(allowed, drawn) for query_id in chunk}
        needed = sorted({i for q in chunk for i in (queries[q].doc_id, *hard[q], *others[q])})
        documents = {document.doc_id: document for document in get(needed)}
        for query_id in chunk:
            query, rng = queries[query_id], rngs[query_id]
            doc_ids = select_negatives(
                query, hard[query_id], others[query_id], documents, hard_count, random_count, rng
            )
            if doc_ids:
                source = variant_id(query.doc_id, query.hidden)
                doc_ids.insert(rng.randint(0, len(doc_ids)), source)  # at random, as losses may break ties by position
                lists.append(Candidates(query_id, tuple(doc_ids), tuple(int(i == source) for i in doc_ids)))
    return lists


def with_bm25_labels(lists: Sequence[Candidates], ranked: Run) -> list[Candidates]:
    """The lists with the order of BM25 as labels (Dehghani et al., SIGIR 2017), in place of their sources.

    A document that BM25 found is labelled with the number of documents of the list that it ranks below it; the others
    have 0. `ranked` are BM25's documents of each pseudo-query. A list without a document that BM25 found is left out.
    """
    labelled = []
    for candidates in lists:
        found = ranked.get(candidates.query_id, {})
        scores = [found.get(parse_variant_id(doc_id)[0], -math.inf) for doc_id in candidates.doc_ids]
        labels = tuple(sum(other < score for other in scores) for score in scores)
        if any(labels):
            labelled.append(replace(candidates, labels=labels))
    return labelled


def texts_of(variants: Sequence[str], get: GetDocuments) -> Iterator[str]:
    """The texts of documents with their hidden parts, in the order asked for."""
    for first in range(0, len(variants), CHUNK):
        chunk = [parse_variant_id(variant) for variant in variants[first : first + CHUNK]]
        doc_ids = list(dict.fromkeys(doc_id for doc_id, _ in chunk))
        documents = {document.doc_id: document for document in get(doc_ids)}
        yield from (text_of(documents[doc_id], hidden) for doc_id, hidden in chunk)


def write_lists(path: Path, lists: PseudoLists) -> None:
    """Writes the lists as JSON, one per line."""
    with atomic_write(path) as tmp, tmp.open("w", encoding="utf-8") as out:
        out.writelines(_lines("train", lists.train, lists))
        out.writelines(_lines("held_out", lists.held_out, lists))


def _lines(part: str, part_lists: Iterable[Candidates], lists: PseudoLists) -> Iterator[str]:
    for candidates in part_lists:
        query_id = candidates.query_id
        record: dict[str, Any] = {
            "part": part,
            "query_id": query_id,
            "kind": lists.kinds[query_id],
            "query": lists.queries[query_id],
        }
        record |= {"doc_ids": candidates.doc_ids, "labels": candidates.labels}
        yield json.dumps(record, ensure_ascii=False) + "\n"


def read_lists(path: Path) -> PseudoLists:
    """Reads what `write_lists` wrote; raises UserError with file and line for anything else."""
    lists = PseudoLists({}, {}, [], [])
    for record in read_json_lines(path, ListRecord, f"remove {path.parent} and run again"):
        query_id = record["query_id"]
        lists.queries[query_id], lists.kinds[query_id] = record["query"], record["kind"]
        candidates = Candidates(query_id, tuple(record["doc_ids"]), tuple(record["labels"]))
        (lists.train if record["part"] == "train" else lists.held_out).append(candidates)
    return lists
