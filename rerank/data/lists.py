"""Training lists from a file: queries and documents by id or by text, with judgments or a teacher's scores."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict

from rerank.data.records import PAIR_LINE, pair_of, read_records, source_hash, text_id
from rerank.data.types import FLOAT32_MAX, Candidates
from rerank.utils.errors import UserError
from rerank.utils.json_files import check_shape, shown

LIST_LINE = '{"query_id" or "query": …, "doc_ids" or "documents": […], "labels": […]}'
OF_TEXT = "text "
"""Prefix of ids generated for texts; the ids of collections contain no white space."""

Labels = Literal["judgments", "scores"]


class ListLine(TypedDict, total=False):  # see LIST_LINE
    query_id: str
    query: str
    doc_ids: list[str]
    documents: list[str]
    labels: list[float]


@dataclass(frozen=True)
class TrainingLists:
    """The lists of a file, one a line, in the order of the file.

    Queries and documents given by text have the id of `id_of_text`. `queries` maps the ids of such queries to their
    texts; the texts of documents stay in the file (see `texts`).
    """

    path: Path
    sha256: str
    lists: list[Candidates]
    queries: dict[str, str]

    def doc_ids(self) -> tuple[list[str], list[str]]:
        """The distinct ids of the collection's documents and of the documents given by text, in the file's order."""
        ids = dict.fromkeys(doc_id for found in self.lists for doc_id in found.doc_ids)
        return [i for i in ids if not i.startswith(OF_TEXT)], [i for i in ids if i.startswith(OF_TEXT)]

    def query_texts(self, queries: Mapping[str, str]) -> dict[str, str]:
        """query_id -> text of the lists' queries; `queries` are the collection's queries."""
        own, ids = self.queries, dict.fromkeys(found.query_id for found in self.lists)
        return {query_id: own[query_id] if query_id in own else queries[query_id] for query_id in ids}

    def texts(self) -> Iterator[str]:
        """Yields the distinct documents given by text, in the order of their ids; UserError if the file has changed."""
        if source_hash(self.path) != self.sha256:
            raise UserError(f"{self.path}: has changed since it was read; run the same command again")
        seen = set()
        for place, record in read_records(self.path, LIST_LINE):
            for text in check_shape(_as_list(record, place), ListLine).get("documents", ()):
                if (doc_id := id_of_text(text)) not in seen:
                    seen.add(doc_id)
                    yield text


def read_training_lists(
    path: Path, queries: Mapping[str, str], labels: Labels, highest: int = 2**24, advice: str = "take lower grades"
) -> TrainingLists:
    """Reads a file of training lists, one JSON object per line in the form LIST_LINE, or triples (PAIR_LINE).

    `path` may be a Hugging Face data set folder too. A line has the query by id or by text, the documents by ids or by
    texts, and a label for each document: a judgment from 0 to `highest`, or a teacher's score, any finite float32.
    Other keys and empty lines are ignored. `queries` are the collection's queries, query_id -> text; `advice` ends the
    message about a higher judgment. Raises UserError if the file cannot be read or has no list. Raises UserError with
    file and line for a malformed line, fewer than two documents, a repeated document, a label out of range, and an
    unknown query.
    """
    sha256 = source_hash(path)  # before reading, so `texts` notices a change
    lists, by_text = list[Candidates](), dict[str, str]()
    for place, record in read_records(path, LIST_LINE):
        try:
            found = _read_list(_as_list(record, place), queries, labels, by_text)
            if labels == "judgments" and max(found.labels) > highest:
                raise ValueError(f"grade {max(found.labels):g}: {advice}")
            lists.append(found)
        except ValueError as error:
            raise UserError(f"{place}: {error}") from None
    if not lists:
        raise UserError(f"{path}: empty file; expected lines of {LIST_LINE}")
    return TrainingLists(path, sha256, lists, by_text)


def id_of_text(text: str) -> str:
    """The id of a query or document given by text; equal texts have equal ids.

    >>> id_of_text("wing flutter")
    'text 115163ad8b8708395c8adb0392035bdc'
    """
    return OF_TEXT + text_id(text)


def _as_list(record: dict[str, object], place: str) -> dict[str, object]:
    """The record in the form LIST_LINE; a triple is a list of its positive text, with label 1, and its negatives."""
    pair = pair_of(record, place)
    if pair is None:
        return record
    documents = [pair.positive, *pair.negatives]
    return {"query": pair.query, "documents": documents, "labels": [1.0] + [0.0] * len(pair.negatives)}


def _read_list(
    record: dict[str, object], queries: Mapping[str, str], labels: Labels, by_text: dict[str, str]
) -> Candidates:
    """The list of a line; a query given by text is added to `by_text`. Raises ValueError for a malformed line."""
    line = check_shape(record, ListLine)
    by_id, documents_by_id = "query_id" in line, "doc_ids" in line
    if by_id == ("query" in line) or documents_by_id == ("documents" in line):
        raise ValueError(f"expected {LIST_LINE} or {PAIR_LINE}, got the keys {shown(list(record))}")
    query_id = line["query_id"] if by_id else line["query"]
    documents = line["doc_ids"] if documents_by_id else line["documents"]
    values = line.get("labels", [])
    if by_id and query_id not in queries:
        raise ValueError(f"the collection has no query {query_id}; give its text under 'query', or drop the line")
    if not by_id:
        query_id, text = id_of_text(query_id), query_id
        by_text[query_id] = text
        if not text.strip():
            raise ValueError(f"expected the text of a query under 'query', got {text!r}")
    if not 2 <= len(documents) == len(values):
        got = f"{len(documents)} and {len(values)}"
        raise ValueError(f"expected two documents or more, and a label for each, got {got}")
    doc_ids = tuple(documents if documents_by_id else map(id_of_text, documents))
    if len(set(doc_ids)) < len(doc_ids):
        raise ValueError(f"expected each document once, got {shown(Counter(documents).most_common(1)[0][0])} again")
    least = 0 if labels == "judgments" else -FLOAT32_MAX
    if wrong := [value for value in values if not least <= value <= FLOAT32_MAX]:
        what = "judgments from 0 on" if labels == "judgments" else "finite numbers (float32)"
        raise ValueError(f"expected {what} under 'labels', as the loss takes {labels}, got {shown(wrong[0])}")
    return Candidates(query_id, doc_ids, tuple(map(float, values)))
