"""Collections: queries, judgments and documents in any format; one file a format."""

from rerank.data.collections.collection import (
    READERS,
    Collection,
    Documents,
    Reader,
    Source,
    open_collection,
    open_source,
    queries_to_search,
    queries_to_train,
    register,
    with_copied_documents,
)

__all__ = ["READERS", "Collection", "Documents", "Reader", "Source", "open_collection", "open_source"]
__all__ += ["queries_to_search", "queries_to_train", "register", "with_copied_documents"]
