"""Jina's re-ranker API: `POST /v1/rerank`, and `POST /rerank` with `documents`; SiliconFlow's and Xinference's too."""

from typing import Any

from rerank.serving.dialects.dialect import Dialect
from rerank.serving.dialects.documents import DocumentsRequest, answer, question
from rerank.serving.refusals import RefusalError


def error(refusal: RefusalError, status: int) -> dict[str, Any]:
    """{detail, message}: Jina's clients read the first, those of SiliconFlow and of Cohere's version 1 the second."""
    return {"detail": str(refusal), "message": str(refusal)}


JINA = Dialect("jina", DocumentsRequest, question, answer, error)
