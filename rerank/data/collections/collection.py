"""Collections: queries, judgments and documents in any format, and the readers of the formats."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from rerank.data.collections.beir import BeirFolder
from rerank.data.collections.irds import IrDataset
from rerank.data.collections.pairs import Pairs
from rerank.data.folds import Judged
from rerank.data.queries import read_queries
from rerank.data.types import Document, Fold, Judgments
from rerank.utils.errors import UserError
from rerank.utils.registry import Registry
from rerank.utils.texts import check_path, list_of_texts


class Documents(Protocol):
    """Documents that are read on access.

    All methods raise UserError if the documents are missing, malformed or cannot be downloaded.
    """

    @property
    def fingerprint(self) -> str:
        """Identifies the texts of the documents, and names the caches that are derived from them."""

    @property
    def has_documents(self) -> bool:
        """Whether the documents are on this machine or can be downloaded."""

    @property
    def found_at_once(self) -> bool:
        """Whether finding a document needs neither a download nor building a store."""

    def count(self) -> int:
        """The approximate number of documents; 0 if unknown."""

    def documents(self) -> Iterator[Document]:
        """Yields all documents. Raises UserError for an id that occurs twice."""

    def get(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        """Yields the documents with these ids, in this order. Raises UserError for an unknown id."""

    def known(self, doc_ids: Iterable[str]) -> set[str]:
        """The ids that have a document."""


class Source(Documents, Protocol):
    """Documents with queries and judgments, which are read on first use and raise UserError as the documents do."""

    @property
    def source(self) -> str:
        """The folder or id that the user gave."""

    @property
    def name(self) -> str:
        """A name for the collection's folder of results."""

    @property
    def queries(self) -> dict[str, str]:
        """query_id -> text of all queries, judged or not; the text of a TREC topic is its title."""

    @property
    def judged(self) -> Judged:
        """The judgments, the official folds or the published split, and notes; `Judged({})` without judgments."""

    def place_of(self, query_id: str, doc_id: str) -> str:
        """Where a judgment is, for a message: file:line, or the source and both ids."""

    def expect_judgments(self) -> None:
        """Raises UserError, which names the missing files, if there are no judgments."""


@runtime_checkable
class HasQueryFields(Protocol):
    """What a source has in addition if its queries have several fields, as TREC's topics."""

    def queries_by(self, fields: Sequence[str]) -> dict[str, str]:
        """query_id -> these fields of each query, joined by a space; raises UserError for an unknown field."""


class Reader(Protocol):
    """A class that opens one format."""

    @classmethod
    def matches(cls, source: str) -> bool:
        """Whether this reader opens the source; must be fast."""

    def __call__(self, source: str) -> Source:
        """Opens the source; raises UserError if it cannot be opened."""


AnyReader = TypeVar("AnyReader", bound=Reader)
Ids = TypeVar("Ids", bound=Iterable[str])
READERS: Registry[Reader] = Registry("reader")
FORMATS: tuple[Reader, ...] = (Pairs, BeirFolder, IrDataset)
"""The readers that are tried last, in this order."""


def register(reader: AnyReader) -> AnyReader:
    """Class decorator: `open_source` tries this reader before all others.

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
    """Opens a source with the first reader that `matches` it; raises UserError if no reader does."""
    if not source:  # Path("") is the working directory
        raise UserError("collection: expected a folder, a file or an ir_datasets id, got an empty name")
    readers: list[Reader] = [*reversed(list(READERS.values())), *FORMATS]
    for reader in readers:
        if reader.matches(source):
            return reader(source)
    from rerank.data.letor.layouts import lacks_query_ids  # loads pyarrow

    got = "is a file without feature vectors" if Path(source).is_file() else "no such folder"
    if lacks_query_ids(source):
        got = "its first line has features, but no qid:QUERY after the label, which says what is ranked together"
    raise UserError(
        f"collection {source}: {got}; expected a folder with corpus.jsonl, queries.jsonl and, to train, "
        "qrels/test.tsv, an ir_datasets id, or a file of SVMlight lines `label qid:QUERY index:value …`"
    )


@dataclass(frozen=True)
class Collection:
    """Queries, judgments and documents, made by `open_collection`.

    `queries_file` replaces the queries of `origin`. `query_fields` are the fields that are a query's text, if they are
    not the usual one. `texts`, such as the texts of a Lucene index, replaces its documents.

    >>> from tempfile import TemporaryDirectory
    >>> from rerank.data.demo import make_collection
    >>> with TemporaryDirectory() as folder:
    ...     make_collection(Path(folder) / "towns")
    ...     collection = open_collection(Path(folder, "towns").as_posix())
    ...     collection.name, len(collection.queries), sum(1 for _ in collection.documents())
    ('towns', 300, 6000)
    """

    origin: Source
    queries_file: str = ""
    texts: Documents | None = None
    query_fields: Sequence[str] = ()

    @functools.cached_property
    def queries(self) -> dict[str, str]:
        if self.queries_file:
            return read_queries(self.queries_file, fields=self.query_fields)
        if not self.query_fields:
            return self.origin.queries
        if not isinstance(self.origin, HasQueryFields):
            field = "+".join(self.query_fields)
            raise UserError(f"--collection.query-field {field}: the reader of {self.source} reads no fields of queries")
        return self.origin.queries_by(self.query_fields)

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
        return self._documents.get(_several(doc_ids))

    def known(self, doc_ids: Iterable[str]) -> set[str]:
        return self._documents.known(_several(doc_ids))

    @property
    def _documents(self) -> Documents:
        return self.texts or self.origin


def _several(doc_ids: Ids) -> Ids:
    """The ids; raises TypeError for a single text, whose characters would be taken for ids."""
    if isinstance(doc_ids, str):
        raise TypeError("doc_ids: expected a sequence of ids, got one text")
    return doc_ids


def open_collection(source: str, queries: str | Path = "", query_fields: Sequence[str] = ()) -> Collection:
    """Opens a collection; its files are read on first use.

    `queries` is a file that replaces the collection's queries. `query_fields`, such as ["title", "description"], are
    joined as the text of a query; by default it is the title of a TREC topic, and "text" of a JSON object. Raises
    TypeError for a single field without a list, and UserError if no reader opens the source.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "corpus.jsonl").write_text('{"_id": "d1", "title": "Wings", "text": "Lift and drag."}')
    ...     _ = Path(folder, "queries.jsonl").write_text('{"_id": "q1", "text": "drag"}')
    ...     collection = open_collection(folder)
    ...     collection.queries, [document.text for document in collection.get(["d1"])]
    ({'q1': 'drag'}, ['Wings Lift and drag.'])
    """
    source, queries = check_path("source", source), check_path("queries", queries)
    return Collection(open_source(source), queries, query_fields=list_of_texts("query_fields", query_fields))


def with_copied_documents(collection: Collection, folder: Path) -> Collection:
    """The collection with a copy of its corpus in `folder`, if its format has a file that can be written over.

    So a server has the documents that it opened. Raises UserError if the copy cannot be written, or if the corpus
    changes in the meantime.
    """
    copy_to = getattr(collection.origin, "copy_to", None)
    if copy_to is None or collection.texts is not None:
        return collection
    return replace(collection, texts=copy_to(folder))


def queries_to_search(collection: Collection) -> dict[str, str]:
    """The queries for the first stage: all queries of `queries_file`, or else the queries of an experiment."""
    return collection.queries if collection.queries_file else queries_to_train(collection)


def queries_to_train(collection: Collection) -> dict[str, str]:
    """The queries of an experiment: judged queries and queries of official folds; without judgments, all queries.

    Raises UserError if the file of queries lacks one of them.
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
