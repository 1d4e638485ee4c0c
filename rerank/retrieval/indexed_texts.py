"""The texts of a collection's documents as a Lucene index stores them, for users without a copy of the documents."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from rerank.data.collections import Collection
from rerank.data.formats.irds import IrDataset
from rerank.data.types import Document
from rerank.retrieval.lucene_index import check_index, count_documents, index_identity, open_searcher
from rerank.utils.errors import UserError
from rerank.utils.json_files import parse_json

REMEDY = "take another index, or give the collection's own copy"


class StoredDocument(TypedDict):
    """What Anserini's JsonCollection stores of a document."""

    contents: str


@dataclass(frozen=True)
class IndexedTexts:
    """The documents of a collection, named by its source, as a Lucene index stores them; see `Documents`.

    For Robust04 the texts are those that ir_datasets gives, except for the titles of FBIS (see `IrDataset.parse_sgml`).
    Raises UserError if `index` is not a Lucene index.
    """

    source: str
    index: Path

    def __post_init__(self) -> None:
        check_index(self.index)

    @functools.cached_property
    def fingerprint(self) -> str:
        return index_identity(self.index)

    @property
    def has_documents(self) -> bool:
        return True

    def count(self) -> int:
        return count_documents(self.index)

    def documents(self) -> Iterator[Document]:
        """Every document, in the index's order. Raises UserError if the index does not store the texts."""
        with open_searcher(self.index) as searcher:
            for number in range(int(searcher.get_total_num_docs())):
                document = searcher.doc(number)
                yield self._parse(str(document.get("id")), document.get("raw"))

    def get(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        """These documents, in the order asked.

        Raises UserError for an id that is not in the index, and if the index does not store the texts.
        """
        with open_searcher(self.index) as searcher:
            for doc_id in doc_ids:
                document = searcher.doc(doc_id)
                if document is None:
                    raise UserError(f"index {self.index}: has no document {doc_id}; {REMEDY}")
                yield self._parse(doc_id, document.get("raw"))

    def _parse(self, doc_id: str, raw: str | None) -> Document:
        """The document of what the index stores: JSON, or the SGML that Anserini's TrecCollection keeps."""
        if raw is None:
            raise UserError(f"index {self.index}: does not store the text of document {doc_id}; {REMEDY}")
        if not raw.lstrip().startswith("{") and IrDataset.matches(self.source):
            return IrDataset(self.source).parse_sgml(doc_id, raw)
        try:
            return Document(doc_id, "", parse_json(raw.encode(), StoredDocument)["contents"])
        except ValueError as error:
            raise UserError(f"document {doc_id}: the index stores {raw[:40]!r}..., expected JSON: {error}") from None


def with_indexed_texts(collection: Collection, index: Path) -> Collection:
    """The collection with the documents of a Lucene index; raises UserError if `index` is none."""
    return replace(collection, texts=IndexedTexts(collection.source, index))
