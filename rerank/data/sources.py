"""Sources of collections: what the reader of a format opens, and the readers of all formats."""

import functools
import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from rerank.data.folds import Judged
from rerank.data.types import Document
from rerank.utils.errors import UserError
from rerank.utils.plugins import load_plugins

FORMATS = "rerank.data.formats"
EXPECTED = (
    "a folder with corpus.jsonl, queries.jsonl and, to train, qrels/test.tsv, an ir_datasets id, or a file of SVMlight "
    "lines `label qid:QUERY index:value …`"
)


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

    def count(self) -> int:
        """The number of documents, about; 0 if unknown."""

    def documents(self) -> Iterator[Document]:
        """Every document. Raises UserError for an id that occurs twice."""

    def get(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        """These documents, in the order asked. Raises UserError for an unknown id."""


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
    """A class that opens one format: `matches` tells from the source alone whether to open it."""

    @classmethod
    def matches(cls, source: str) -> bool:
        """Whether this reader opens the source; must be quick."""

    def __call__(self, source: str) -> Source:
        """Opens the source; raises UserError if it cannot be opened."""


AnyReader = TypeVar("AnyReader", bound=Reader)
_readers: list[Reader] = []


def register(reader: AnyReader, fallback: bool = False) -> AnyReader:
    """Makes `open_source` ask this reader; a class decorator. Fallbacks are asked after all others.

    >>> @register
    ... class Tiny:
    ...     queries, judged = {"q1": "drag"}, Judged({"q1": {"d1": 1}})
    ...     def __init__(self, source): self.name = self.source = source
    ...     @classmethod
    ...     def matches(cls, source): return source == "tiny"
    >>> open_source("tiny").queries
    {'q1': 'drag'}
    """
    _readers.insert(len(_readers) if fallback else 0, reader)
    return reader


def open_source(source: str) -> Source:
    """Opens a source by the first reader that `matches` it; raises UserError if none does."""
    _import_formats()
    load_plugins()
    for reader in _readers:
        if reader.matches(source):
            return reader(source)
    got = "is a file without feature vectors" if Path(source).is_file() else "no such folder"
    raise UserError(f"collection {source}: {got}; expected {EXPECTED}")


@functools.cache
def _import_formats() -> None:
    for module in pkgutil.iter_modules(importlib.import_module(FORMATS).__path__):
        importlib.import_module(f"{FORMATS}.{module.name}")
