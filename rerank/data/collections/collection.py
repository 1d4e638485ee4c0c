"""Collections: queries, judgments and documents, whatever the format they are stored in, and the readers of formats."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from rerank.data.collections.beir import BeirFolder
from rerank.data.collections.irds import IrDataset
from rerank.data.folds import Judged
from rerank.data.text_lines import read_queries
from rerank.data.types import Document, Fold, Judgments
from rerank.utils.errors import UserError
from rerank.utils.registry import Registry


class Documents(Protocol):
    """Documents, read when they are asked for.

    All methods raise UserError if the documents are missing, malformed or cannot be downloaded.
    """

    @property
    def fingerprint(self) -> str:
        """Identifies the texts of the documents: it names the caches that are made from them."""

    @property
    def has_documents(self) -> bool:
        """Whether the documents are on this machine or can be downloaded."""

    @property
    def found_at_once(self) -> bool:
        """Whether a document is found without a download, and without a store that is built first."""

    def count(self) -> int:
        """The number of documents, about; 0 if unknown."""

    def documents(self) -> Iterator[Document]:
        """Every document. Raises UserError for an id that occurs twice."""

    def get(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        """These documents, in the order asked. Raises UserError for an unknown id."""

    def known(self, doc_ids: Iterable[str]) -> set[str]:
        """Those of the ids that have a document."""


class Source(Documents, Protocol):
    """Documents with queries and judgments; each part is read when it is first used, and raises UserError likewise."""

    @property
    def source(self) -> str:
        """What the user wrote: a folder or an id."""

    @property
    def name(self) -> str:
        """A name for the collection's folder of results."""

    @property
    def queries(self) -> dict[str, str]:
        """query_id to text, of every query, judged or not; the title, for TREC topics."""

    @property
    def judged(self) -> Judged:
        """The judgments, the official folds or the published split, and notes; `Judged({})` without judgments."""

    def expect_judgments(self) -> None:
        """Raises UserError, which names what is missing, if there are no judgments."""


class Reader(Protocol):
    """A class that opens one format."""

    @classmethod
    def matches(cls, source: str) -> bool:
        """Whether this reader opens the source: must be quick."""

    def __call__(self, source: str) -> Source:
        """Opens the source; raises UserError if it cannot be opened."""


AnyReader = TypeVar("AnyReader", bound=Reader)
READERS: Registry[Reader] = Registry("reader")
FORMATS: tuple[Reader, ...] = (BeirFolder, IrDataset)
"""The readers that are asked last, in this order."""


def register(reader: AnyReader) -> AnyReader:
    """Makes `open_source` ask this reader before all others; a class decorator.

    >>> @register
    ... class Tiny:
    ...     queries, judged = {"q1": "drag"}, Judged({"q1": {"d1": 1}})
    ...     def __init__(self, source): self.name = self.source = source
    ...     @classmethod
    ...     def matches(cls, source): return source == "tiny"
    >>> open_source("tiny").queries
    {'q1': 'drag'}
    """
    READERS.register(f"{reader.__module__}.{getattr(reader, '__qualname__', '')}", reader)
    return reader


def open_source(source: str) -> Source:
    """Opens a source by the first reader that `matches` it; raises UserError if none does."""
    readers: list[Reader] = [*reversed(list(READERS.values())), *FORMATS]
    for reader in readers:
        if reader.matches(source):
            return reader(source)
    got = "is a file without feature vectors" if Path(source).is_file() else "no such folder"
    raise UserError(
        f"collection {source}: {got}; expected a folder with corpus.jsonl, queries.jsonl and, to train, "
        "qrels/test.tsv, an ir_datasets id, or a file of SVMlight lines `label qid:QUERY index:value …`"
    )


@dataclass(frozen=True)
class Collection:
    """A source whose queries `queries_file` replaces, and whose documents `texts`, such as those of a Lucene index."""

    origin: Source
    queries_file: str = ""
    texts: Documents | None = None

    @functools.cached_property
    def queries(self) -> dict[str, str]:
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
    def fingerprint(self) -> str:
        return self._documents.fingerprint

    @property
    def has_documents(self) -> bool:
        return self._documents.has_documents

    @property
    def found_at_once(self) -> bool:
        return self._documents.found_at_once

    def count(self) -> int:
        return self._documents.count()

    def documents(self) -> Iterator[Document]:
        return self._documents.documents()

    def get(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        return self._documents.get(doc_ids)

    def known(self, doc_ids: Iterable[str]) -> set[str]:
        return self._documents.known(doc_ids)

    @property
    def _documents(self) -> Documents:
        return self.texts or self.origin


def open_collection(source: str, queries: str | Path = "") -> Collection:
    """Opens a collection and reads nothing yet; `queries` is a file that replaces the collection's queries.

    Raises UserError if no reader opens the source.
    """
    return Collection(open_source(source), str(queries))


def queries_to_search(collection: Collection) -> dict[str, str]:
    """The queries that a first stage retrieves for: those of an experiment, or all of a file of queries."""
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
