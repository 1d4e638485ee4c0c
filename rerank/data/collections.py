"""Collections: queries, judgments and documents, whatever the format they are stored in."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rerank.data.queries import read_queries
from rerank.data.sources import Documents, Source, open_source
from rerank.data.types import Document, Fold, Judgments
from rerank.utils.errors import UserError


@dataclass(frozen=True)
class Collection:
    """A source of queries, judgments and documents; see `Source` for the attributes.

    `queries_file`, which `read_queries` reads, replaces the queries of the source, and `texts` its documents, as by
    those of a Lucene index.
    """

    origin: Source
    queries_file: str = ""
    texts: Documents | None = None

    @functools.cached_property
    def queries(self) -> dict[str, str]:
        """query_id to text, of every query, judged or not."""
        return read_queries(self.queries_file) if self.queries_file else self.origin.queries

    @property
    def source(self) -> str:
        return self.origin.source

    @property
    def name(self) -> str:
        return self.origin.name

    @property
    def qrels(self) -> Judgments:
        return self.origin.judged.qrels

    @property
    def folds(self) -> tuple[Fold, ...]:
        return self.origin.judged.folds

    @property
    def notes(self) -> tuple[str, ...]:
        return self.origin.judged.notes

    @property
    def fingerprint(self) -> str:
        return self._documents.fingerprint

    @property
    def has_documents(self) -> bool:
        return self._documents.has_documents

    def expect_judgments(self) -> None:
        self.origin.expect_judgments()

    def count(self) -> int:
        return self._documents.count()

    def documents(self) -> Iterator[Document]:
        return self._documents.documents()

    def get(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        return self._documents.get(doc_ids)

    @property
    def _documents(self) -> Documents:
        return self.texts or self.origin


def open_collection(source: str, queries: str | Path = "") -> Collection:
    """Opens a collection; reads no query or document yet. `queries` is a file that replaces the collection's queries.

    Raises UserError if no reader opens the source.
    """
    return Collection(open_source(source), str(queries))


def queries_to_search(collection: Collection) -> dict[str, str]:
    """The queries that a first stage retrieves for, in the collection's order.

    They are the judged queries and those of the official folds; every query, if the collection has no judgments or its
    queries come from a file.
    """
    return collection.queries if collection.queries_file else queries_to_train(collection)


def queries_to_train(collection: Collection) -> dict[str, str]:
    """The queries of an experiment: those judged or in an official fold; every query of a collection without judgments.

    Raises UserError if a file of queries does not have all of them.
    """
    if not collection.qrels:
        return collection.queries
    wanted = dict.fromkeys((*collection.qrels, *(query_id for fold in collection.folds for query_id in fold.test)))
    if collection.queries_file and (missing := [query_id for query_id in wanted if query_id not in collection.queries]):
        raise UserError(
            f"{collection.queries_file}: has no text of {len(missing)} of the {len(wanted)} judged queries, such as "
            f"{missing[0]}; training and evaluation need all of them: add them to the file"
        )
    return {query_id: text for query_id, text in collection.queries.items() if query_id in wanted}
