"""Collections: queries, judgments and documents, whatever the format they are stored in."""

import functools
import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from rerank.data import formats
from rerank.data.queries import WithQueries
from rerank.data.splits import Splits
from rerank.data.types import Document, Judgments
from rerank.data.with_splits import WithSplits
from rerank.utils.errors import UserError

EXPECTED = (
    "a folder with corpus.jsonl, queries.jsonl and, to train, qrels/test.tsv, a .zip of such a folder, an ir_datasets "
    "id, or a file of SVMlight lines `label qid:QUERY index:value …`"
)


class UnknownDocumentError(UserError):
    """A collection was asked for a document that it does not have."""

    def __init__(self, message: str, doc_id: str) -> None:
        super().__init__(message)
        self.doc_id = doc_id


class Collection(Protocol):
    """Queries, judgments and documents; each part is read when it is first used.

    Judgments may be missing: `qrels` is empty then. All parts raise UserError if they are malformed or cannot be
    downloaded, and queries and documents also if they are missing.
    """

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
    def qrels(self) -> Judgments:
        """The judgments; {} for a collection without judgments."""

    @property
    def official_folds(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The names and query ids of the folds that the collection comes with, or ()."""

    @property
    def splits(self) -> Splits:
        """The queries of the published split, which takes the place of folds; `Splits()` without one."""

    @property
    def fingerprint(self) -> str:
        """Identifies the texts of the documents: it names the caches that are made from them."""

    @property
    def has_documents(self) -> bool:
        """Whether the documents are on this machine or can be downloaded."""

    def query_texts(self, field: str) -> dict[str, str]:
        """query_id to the text of one field of every query, such as narrative.

        Raises UserError, with the fields that there are, for another one.
        """

    def expect_judgments(self) -> None:
        """Raises UserError, which names what is missing, if the collection has no judgments."""

    def count(self) -> int:
        """The number of documents, about; 0 if unknown."""

    def documents(self) -> Iterator[Document]:
        """Every document. Raises UserError for an id that occurs twice."""

    def get(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        """These documents, in the order asked. Raises UnknownDocumentError, a UserError, for an unknown id."""


class Reader(Protocol):
    """A class that opens one format: `matches` tells from the source alone whether to open it."""

    @classmethod
    def matches(cls, source: str) -> bool:
        """Whether this reader opens the source; must be quick."""

    def __call__(self, source: str) -> Collection:
        """Opens the source; raises UserError if it cannot be opened."""


AnyReader = TypeVar("AnyReader", bound=Reader)
_readers: list[Reader] = []


def register(reader: AnyReader, fallback: bool = False) -> AnyReader:
    """Makes `open_collection` ask this reader; a class decorator. Fallbacks are asked after all others.

    >>> @register
    ... class Tiny:
    ...     queries, qrels = {"q1": "drag"}, {"q1": {"d1": 1}}
    ...     def __init__(self, source): self.name = self.source = source
    ...     @classmethod
    ...     def matches(cls, source): return source == "tiny"
    >>> open_collection("tiny").queries
    {'q1': 'drag'}
    """
    _readers.insert(len(_readers) if fallback else 0, reader)
    return reader


def open_collection(
    source: str, queries: str | Path = "", query_field: str = "", train: str = "", valid: str = ""
) -> Collection:
    """Opens a collection: asks each registered reader in turn whether it `matches` the source.

    `queries` is a file that replaces the collection's queries, and `query_field` the field of the queries to take
    (see `WithQueries`). `train` and `valid` are collections of the same documents whose queries train and validate,
    while those of the source test (see `WithSplits`). Reads no query or document yet. Raises UserError if no reader
    opens one of the sources.
    """
    collection = _open(source)
    if valid and not train:
        raise UserError(f"--collection.valid {valid}: expected --collection.train too, the queries that train")
    if train:
        collection = WithSplits(collection, _open(train), _open(valid) if valid else None)
    return WithQueries(collection, str(queries), query_field) if queries or query_field else collection


def _open(source: str) -> Collection:
    _import_formats()
    for reader in _readers:
        if reader.matches(source):
            return reader(source)
    if Path(source).is_file():
        raise UserError(f"collection {source}: is a file without feature vectors; expected {EXPECTED}")
    raise UserError(f"collection {source}: no such folder; expected {EXPECTED}")


def queries_to_search(collection: Collection) -> dict[str, str]:
    """The queries that a first stage retrieves for, in the collection's order.

    They are the judged queries and those of the official folds; every query, if the collection has no judgments or its
    queries come from a file.
    """
    if isinstance(collection, WithQueries) and collection.file:
        return collection.queries
    return queries_to_train(collection)


def queries_to_train(collection: Collection) -> dict[str, str]:
    """The queries of an experiment: those judged or in an official fold; every query of a collection without judgments.

    Raises UserError if a file of queries does not have all of them.
    """
    if not collection.qrels:
        return collection.queries
    folds = (query_id for _, part in collection.official_folds for query_id in part)
    wanted = dict.fromkeys((*collection.qrels, *folds))
    if isinstance(collection, WithQueries) and collection.file:
        collection.expect_queries(wanted)
    return {query_id: text for query_id, text in collection.queries.items() if query_id in wanted}


@functools.cache
def _import_formats() -> None:
    for module in pkgutil.iter_modules(formats.__path__):
        importlib.import_module(f"{formats.__name__}.{module.name}")
