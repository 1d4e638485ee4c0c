"""Infinity's re-rank API: `POST /infinity/rerank`, and `POST /rerank` with `documents` and `raw_scores`."""

import time
from typing import Annotated, Any

from rerank.serving.dialects import vllm
from rerank.serving.dialects.dialect import Dialect
from rerank.serving.dialects.fields import Request, honoured, without_effect
from rerank.serving.dialects.jina import ONE_MODEL, Positive, identity
from rerank.serving.questions import Question, Scored, query_and_texts


class InfinityRequest(Request, kw_only=True):
    """Fields that Infinity does not know are passed over, as it does."""

    model: Annotated[str | None, without_effect(ONE_MODEL)] = None
    query: Annotated[str, honoured("The query.")]
    documents: Annotated[list[str], honoured("The documents.")]
    top_n: Annotated[Positive | None, honoured("The number of results.")] = None
    return_documents: Annotated[bool | None, honoured("The answer repeats the documents.")] = None
    raw_scores: Annotated[bool | None, honoured("The score itself, and not its sigmoid.")] = None


def question(request: InfinityRequest) -> Question:
    """Each document with the query, and how to answer."""
    return Question(
        query_and_texts(request.query, request.documents, "documents"),
        sigmoid=not request.raw_scores,
        top_n=request.top_n,
        shown=request.documents if request.return_documents else None,
    )


def answer(scored: Scored) -> dict[str, Any]:
    """{object, id, created, model, usage, results: [{index, relevance_score, document?}]}; a document is a text."""
    return {
        "object": "rerank",
        "id": identity("infinity-", scored),
        "created": int(time.time()),
        "model": scored.model,
        "usage": scored.usage(),
        "results": scored.ranked(),
    }


INFINITY = Dialect("infinity", InfinityRequest, question, answer, vllm.error, signs=frozenset({"raw_scores"}))
