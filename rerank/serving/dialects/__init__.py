"""The APIs that the server speaks, by the path of their requests: one file each, and a line in DIALECTS."""

from rerank.serving.dialects.cohere import COHERE
from rerank.serving.dialects.dialect import Dialect
from rerank.serving.dialects.jina import JINA
from rerank.serving.dialects.tei import TEI
from rerank.serving.dialects.vllm import VLLM
from rerank.serving.questions import Body

__all__ = ["DIALECTS", "TEI", "Dialect", "dialect_of"]

DIALECTS = {"/rerank": TEI, "/v1/rerank": JINA, "/v2/rerank": COHERE, "/score": VLLM}
"""Path -> the dialect, also of what is refused before the body is read."""


def dialect_of(path: str, body: Body) -> Dialect:
    """The dialect of a request; at /rerank Jina's has `documents`, TEI's `texts`."""
    if path == "/rerank" and "documents" in body and "texts" not in body:
        return JINA
    return DIALECTS[path]
