"""Cohere's re-rank API: `POST /v2/rerank`, and version 1 at `POST /v1/rerank`."""

import uuid
from dataclasses import replace
from typing import Annotated, Any

from rerank.serving.dialects.dialect import Dialect
from rerank.serving.dialects.fields import Request, honoured, refused, without_effect
from rerank.serving.dialects.jina import JINA, ONE_MODEL, Document, Positive, identity, meta, texts_of
from rerank.serving.questions import Question, Scored, query_and_texts
from rerank.serving.refusals import Reason, RefusalError
from rerank.serving.token_limits import TokenLimits


class CohereRequest(Request, kw_only=True, forbid_unknown_fields=True):
    """Fields that version 2 does not know are refused, as Cohere does."""

    model: Annotated[str | None, without_effect(ONE_MODEL)] = None
    query: Annotated[str, honoured("The query.")]
    documents: Annotated[list[Document], honoured("The documents: texts, or objects with a text.")]
    top_n: Annotated[Positive | None, honoured("The number of results.")] = None
    max_tokens_per_doc: Annotated[
        Positive | None, honoured("Tokens kept of a document; without it, those of the model and not Cohere's 4,096.")
    ] = None
    return_documents: Annotated[bool | None, honoured("The answer repeats the documents.")] = None
    priority: Annotated[int | None, without_effect("It is of the order of requests, and not of an answer.")] = None
    relevant_spans: Annotated[
        dict[str, Any] | None, refused("the model marks no spans", (None, {"mode": "disabled"}))
    ] = None


def question(request: CohereRequest) -> Question:
    """Each document with the query, and how to answer."""
    texts = texts_of(request.documents)
    return Question(
        query_and_texts(request.query, texts, "documents"),
        top_n=request.top_n,
        shown=[{"text": text} for text in texts] if request.return_documents else None,
        limits=TokenLimits(document=request.max_tokens_per_doc),
    )


def answer(scored: Scored) -> dict[str, Any]:
    """{id, results: [{index, relevance_score, document?}], meta}, best first."""
    return {"id": identity("", scored), "results": scored.ranked(), "meta": meta(scored, "2")}


def error(refusal: RefusalError, status: int) -> dict[str, Any]:
    """{id, message}."""
    return {"id": str(uuid.uuid4()), "message": str(refusal)}


COHERE = Dialect("cohere", CohereRequest, question, answer, error, {Reason.INVALID: 400}, strict=True, version="v2")
COHERE_1 = replace(JINA, name="cohere", error=error, version="v1", signs=frozenset({"rank_fields"}))
