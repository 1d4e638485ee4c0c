"""The APIs that the server speaks, by the path of their requests."""

from collections.abc import Callable

from rerank.serving.dialects.cohere import COHERE
from rerank.serving.dialects.dialect import Dialect
from rerank.serving.dialects.jina import JINA
from rerank.serving.dialects.tei import TEI
from rerank.serving.dialects.vllm import VLLM
from rerank.serving.questions import Body

__all__ = ["COHERE", "DIALECTS", "JINA", "TEI", "VLLM", "Dialect"]


def tei_or_jina(body: Body) -> Dialect:
    """The dialect of `POST /rerank`: Jina's has `documents`, TEI's `texts`."""
    return JINA if "documents" in body and "texts" not in body else TEI


DIALECTS: dict[str, tuple[Dialect, Callable[[Body], Dialect]]] = {
    "/rerank": (TEI, tei_or_jina),
    "/v1/rerank": (JINA, lambda body: JINA),
    "/v2/rerank": (COHERE, lambda body: COHERE),
    "/score": (VLLM, lambda body: VLLM),
}
"""Path -> the dialect of what is refused before the body is read, and that of a body."""
