"""Pseudo-queries with their neighbours -> training lists with one relevant document, and the texts that they need."""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from rerank.experiments.pretraining.negatives import negatives_of
from rerank.experiments.pretraining.pseudo_queries import (
    Frequencies,
    PseudoQuery,
    Sources,
    pseudo_query,
    shown,
    sources_of,
    text_of,
    unshown,
)
from rerank.types import Candidates, Document, Run
from rerank.utils.files import atomic_write
from rerank.utils.progress import progress

AT_ONCE = 256
SPARE = 3  # random documents drawn beyond those wanted, as some are too short

GetDocuments = Callable[[Sequence[str]], Iterator[Document]]


@dataclass(frozen=True)
class PseudoLists:
    """Lists that train and lists that are held out, of pseudo-queries and of documents shown without a part.

    `queries` are the texts by query_id, `kinds` which kind each is. No document is the source of a held-out query and
    in a training list.
    """

    queries: dict[str, str]
    kinds: dict[str, str]
    train: list[Candidates]
    held_out: list[Candidates]

    def variants(self) -> list[str]:
        """The ids of all documents as they are shown, each once."""
        return sorted({doc_id for candidates in [*self.train, *self.held_out] for doc_id in candidates.doc_ids})


def usable_documents(
    doc_ids: Sequence[str],
    get: GetDocuments,
    frequencies: Frequencies,
    weights: Mapping[str, float],
    wanted: int,
    seed: int,
) -> tuple[list[tuple[Document, Sources]], int]:
    """Documents that can make a pseudo-query, in random order, and how many were looked at to find so many of them."""
    order = random.Random(seed).sample(sorted(doc_ids), len(doc_ids))
    found: list[tuple[Document, Sources]] = []
    looked_at = 0
    while len(found) < wanted and looked_at < len(order):
        some = order[looked_at : looked_at + AT_ONCE]
        for document in get(some):
            sources = sources_of(document, frequencies)
            if any(getattr(sources, kind) for kind, weight in weights.items() if weight > 0):
                found.append((document, sources))
        looked_at += len(some)
    return found, looked_at


def pseudo_queries(
    usable: Sequence[tuple[Document, Sources]],
    wanted: int,
    weights: Mapping[str, float],
    keep_sentence: float,
    seed: int,
) -> dict[str, PseudoQuery]:
    """So many pseudo-queries by query_id: one of each document in turn, in a new order each time."""
    made: dict[str, PseudoQuery] = {}
    for turn in count():
        for document, sources in random.Random(f"{seed} {turn}").sample(usable, len(usable)):
            if len(made) == wanted:
                return made
            query = pseudo_query(document, sources, turn, weights, keep_sentence, seed)
            if query is not None:
                made[f"{query.kind} {turn} of {document.doc_id}"] = query
    raise AssertionError


def make_lists(
    queries: Mapping[str, PseudoQuery],
    found: Run,
    allowed: Sequence[str],
    get: GetDocuments,
    neighbours: int,
    random_count: int,
    seed: int,
) -> list[Candidates]:
    """A list of each pseudo-query: its source, labelled 1, among negatives, labelled 0, in random order.

    `found` are BM25's documents of each pseudo-query. Negatives come from `allowed`. A pseudo-query without any has no
    list.
    """
    lists = []
    within = set(allowed)
    chunks = [list(queries)[first : first + AT_ONCE] for first in range(0, len(queries), AT_ONCE)]
    for chunk in progress(chunks, len(chunks), "lists"):
        rngs = {query_id: random.Random(f"{seed} negatives of {query_id}") for query_id in chunk}
        near = {query_id: [doc_id for doc_id in found.get(query_id, {}) if doc_id in within] for query_id in chunk}
        some = min(len(allowed), neighbours + random_count + SPARE)
        others = {query_id: rngs[query_id].sample(allowed, some) for query_id in chunk}
        needed = sorted({i for q in chunk for i in (queries[q].doc_id, *near[q], *others[q])})
        documents = {document.doc_id: document for document in get(needed)}
        for query_id in chunk:
            query, rng = queries[query_id], rngs[query_id]
            doc_ids = negatives_of(query, near[query_id], others[query_id], documents, neighbours, random_count, rng)
            if doc_ids:
                source = shown(query.doc_id, query.without)
                doc_ids.insert(rng.randint(0, len(doc_ids)), source)  # no place tells it, where a loss breaks ties
                lists.append(Candidates(query_id, tuple(doc_ids), tuple(int(i == source) for i in doc_ids)))
    return lists


def texts_of(variants: Sequence[str], get: GetDocuments) -> Iterator[str]:
    """The texts of documents shown without a part, in the order asked."""
    for first in range(0, len(variants), AT_ONCE):
        wanted = [unshown(variant) for variant in variants[first : first + AT_ONCE]]
        doc_ids = list(dict.fromkeys(doc_id for doc_id, _ in wanted))
        documents = {document.doc_id: document for document in get(doc_ids)}
        yield from (text_of(documents[doc_id], without) for doc_id, without in wanted)


def write_lists(path: Path, lists: PseudoLists) -> None:
    """Writes the lists as JSON, a line each, for people too."""
    with atomic_write(path) as tmp, tmp.open("w", encoding="utf-8") as out:
        out.writelines(_lines("train", lists.train, lists))
        out.writelines(_lines("held_out", lists.held_out, lists))


def _lines(part: str, of_part: Iterable[Candidates], lists: PseudoLists) -> Iterator[str]:
    for found in of_part:
        query_id = found.query_id
        record = {"part": part, "query_id": query_id, "kind": lists.kinds[query_id], "query": lists.queries[query_id]}
        yield json.dumps(record | {"doc_ids": found.doc_ids, "labels": found.labels}, ensure_ascii=False) + "\n"


def read_lists(path: Path) -> PseudoLists:
    """Reads what `write_lists` wrote."""
    lists = PseudoLists({}, {}, [], [])
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        query_id = record["query_id"]
        lists.queries[query_id], lists.kinds[query_id] = record["query"], record["kind"]
        found = Candidates(query_id, tuple(record["doc_ids"]), tuple(record["labels"]))
        (lists.train if record["part"] == "train" else lists.held_out).append(found)
    return lists
