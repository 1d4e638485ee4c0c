"""The APIs that the server speaks: one file each, and its name in one of the tables below."""

from collections.abc import Collection

from rerank.serving.addresses import Address
from rerank.serving.dialects.cohere import COHERE, COHERE_1
from rerank.serving.dialects.dialect import Dialect
from rerank.serving.dialects.embeddings import OPENAI, TEI_EMBED
from rerank.serving.dialects.infinity import INFINITY
from rerank.serving.dialects.jina import JINA
from rerank.serving.dialects.search import SEARCH
from rerank.serving.dialects.tei import TEI
from rerank.serving.dialects.vllm import VLLM_RERANK, VLLM_SCORE
from rerank.serving.dialects.voyage import VOYAGE

__all__ = ["DIALECTS", "EMBEDDINGS", "RANKINGS", "SEARCHES", "Dialect", "dialect_of"]

RANKINGS = {"/rerank": (TEI, INFINITY, VOYAGE, COHERE_1, VLLM_RERANK, JINA, COHERE), "/score": (VLLM_SCORE,)}
"""Path -> the APIs that are spoken there."""
EMBEDDINGS = {"/embed": (TEI_EMBED,), "/embeddings": (OPENAI,)}
SEARCHES = {"/search": (SEARCH,)}
DIALECTS = RANKINGS | EMBEDDINGS | SEARCHES


def dialect_of(address: Address, fields: Collection[str] = ()) -> Dialect:
    """The API of a request, by its address and fields; without a body, that of most requests to the address.

    The first part of the path names it (`/infinity/rerank`); else a field that no other API has tells it. What is left
    is Cohere's in version 2, TEI's at /rerank without `documents`, and Jina's.
    """
    spoken = DIALECTS.get(address.path, (TEI,))
    version = address.version or ("v2" if address.dialect else "")
    if named := [dialect for dialect in spoken if dialect.name == address.dialect and dialect.version in ("", version)]:
        return named[0]
    spoken = tuple(dialect for dialect in spoken if dialect.version in ("", version))
    for dialect in spoken:
        if not dialect.signs.isdisjoint(fields) and not (dialect is TEI and "documents" in fields):
            return dialect
    if address.path != "/rerank":
        return spoken[0]
    if address.version == "v2":
        return COHERE
    return JINA if address.version or "documents" in fields else TEI
