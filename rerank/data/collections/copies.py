"""A copy of a collection's corpus: a server has the documents that it opened, whatever is written over them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rerank.data.collections.collection import Collection, Documents
from rerank.data.types import Document


@dataclass(frozen=True)
class CopiedDocuments:
    """Documents in another place, under the fingerprint of the original; see `Documents` for the methods."""

    copy: Documents
    fingerprint: str
    has_documents = found_at_once = True

    def count(self) -> int:
        return self.copy.count()

    def documents(self) -> Iterator[Document]:
        return self.copy.documents()

    def get(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        return self.copy.get(doc_ids)

    def known(self, doc_ids: Iterable[str]) -> set[str]:
        return self.copy.known(doc_ids)


def with_copied_documents(collection: Collection, folder: Path) -> Collection:
    """The collection with a copy of its corpus in `folder`, if its format has a file that can be written over.

    Raises UserError if the copy cannot be written, or if the corpus changes in the meantime.
    """
    copy_to = getattr(collection.origin, "copy_to", None)
    if copy_to is None or collection.texts is not None:
        return collection
    return replace(collection, texts=CopiedDocuments(copy_to(folder), collection.fingerprint))
