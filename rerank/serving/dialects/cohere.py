"""Cohere's re-rank API, version 2: `POST /v2/rerank`."""

import uuid
from typing import Any

from rerank.serving.dialects.dialect import Dialect
from rerank.serving.dialects.jina import read_documents, results
from rerank.serving.questions import Body, Count, Question, Scored, field
from rerank.serving.refusals import Reason, RefusalError


def read(body: Body) -> Question:
    """{model, query, documents[], top_n, max_tokens_per_doc, return_documents}; a document is a text or {"text": "…"}.

    `max_tokens_per_doc` cuts documents earlier than the model does; without it they are not cut at Cohere's 4,096.
    """
    return read_documents(body)._replace(
        with_texts=bool(field(body, "return_documents", bool | None)),
        max_doc_tokens=field(body, "max_tokens_per_doc", Count | None),
    )


def answer(scored: Scored) -> dict[str, Any]:
    """{id, results: [{index, relevance_score, document?}], meta}, best first; nothing is billed."""
    return {
        "id": str(uuid.uuid4()),
        "results": results(scored),
        "meta": {
            "api_version": {"version": "2", "is_experimental": False},
            "billed_units": {"search_units": 0},
            "tokens": {"input_tokens": scored.tokens, "output_tokens": 0},
        },
    }


def error(refusal: RefusalError, status: int) -> dict[str, Any]:
    """{id, message}."""
    return {"id": str(uuid.uuid4()), "message": str(refusal)}


COHERE = Dialect("cohere", read, answer, error, {Reason.INVALID: 400})
