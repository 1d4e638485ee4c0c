"""A collection whose training and validation queries are those of other collections of the same documents."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rerank.data.splits import Splits, merge_splits
from rerank.data.types import Document, Judgments
from rerank.utils.errors import UserError

if TYPE_CHECKING:
    from rerank.data.collections import Collection


@dataclass(frozen=True)
class WithSplits:
    """The queries of `collection` test, those of `train` train and those of `valid`, if any, validate.

    `given` is what the user wrote, if it is not the source of `collection`, and `notes` are lines about what is not
    used. See `Collection` for the attributes. Documents are those of `collection`. Opening raises UserError for other
    documents, for a collection without judgments, and for one with a split or folds of its own.
    """

    collection: "Collection"
    train: "Collection"
    valid: "Collection | None" = None
    given: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for part, collection in self._parts.items():
            collection.expect_judgments()
            if collection.splits.train or isinstance(collection, WithSplits):
                raise UserError(
                    f"{collection.source}: has training and test queries of its own; expected the id or folder of its "
                    f"{part} queries alone"
                )
            if collection.fingerprint != self.collection.fingerprint:
                raise UserError(
                    f"{collection.source}: has other documents ({collection.fingerprint}) than "
                    f"{self.collection.source} ({self.collection.fingerprint}); training, validation and test queries "
                    "must be of the same documents"
                )

    @property
    def _parts(self) -> "dict[str, Collection]":
        parts = {"train": self.train, "valid": self.valid, "test": self.collection}
        return {part: collection for part, collection in parts.items() if collection is not None}

    @property
    def source(self) -> str:
        """What the user wrote, or the source of the collection that tests."""
        return self.given or self.collection.source

    @property
    def name(self) -> str:
        """The source, with - for /, or the name of the collection that tests."""
        return self.given.replace("/", "-") or self.collection.name

    @functools.cached_property
    def queries(self) -> dict[str, str]:
        """query_id to text, of every query of all parts."""
        return self._merge({part: collection.queries for part, collection in self._parts.items()})

    def query_texts(self, field: str) -> dict[str, str]:
        """query_id to the text of a field, of every query of all parts."""
        return self._merge({part: collection.query_texts(field) for part, collection in self._parts.items()})

    def _merge(self, parts: dict[str, dict[str, str]]) -> dict[str, str]:
        """The queries of all parts; raises UserError for an id that is not the same query in all of them."""
        queries: dict[str, str] = {}
        for part, texts in parts.items():
            for query_id, text in texts.items():
                if queries.setdefault(query_id, text) != text:
                    raise UserError(
                        f"{self._parts[part].source}: query {query_id} is {text[:60]!r}, in another part of the split "
                        f"{queries[query_id][:60]!r}; expected one text for each id"
                    )
        return queries

    @functools.cached_property
    def _judgments(self) -> tuple[Judgments, Splits]:
        parts = {part: collection.qrels for part, collection in self._parts.items()}
        qrels, splits = merge_splits(parts, self.source)
        return qrels, Splits(splits.train, splits.valid, splits.test, (*self.notes, *splits.notes))

    @property
    def qrels(self) -> Judgments:
        """The judgments of all parts."""
        return self._judgments[0]

    @property
    def splits(self) -> Splits:
        """The judged queries of each part."""
        return self._judgments[1]

    @property
    def official_folds(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """None: the split takes their place."""
        return ()

    @property
    def fingerprint(self) -> str:
        """That of the documents, which all parts share."""
        return self.collection.fingerprint

    @property
    def has_documents(self) -> bool:
        """Whether the documents can be had."""
        return self.collection.has_documents

    def expect_judgments(self) -> None:
        """Nothing: opening has checked it."""

    def count(self) -> int:
        """The number of documents."""
        return self.collection.count()

    def documents(self) -> Iterator[Document]:
        """Every document."""
        return self.collection.documents()

    def get(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        """These documents, in the order asked."""
        return self.collection.get(doc_ids)
