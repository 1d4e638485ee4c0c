"""Voyage's re-rank API: `POST /voyage/v1/rerank`, and `POST /v1/rerank` with `top_k`."""

from typing import Annotated, Any

from rerank.serving.dialects.dialect import Dialect
from rerank.serving.dialects.fields import Request, honoured, without_effect
from rerank.serving.dialects.jina import NEVER_CUT, ONE_MODEL, Positive
from rerank.serving.questions import Question, Scored, query_and_texts
from rerank.serving.refusals import Reason, RefusalError


class VoyageRequest(Request, kw_only=True, forbid_unknown_fields=True):
    """Fields that Voyage does not know are refused, as it does."""

    model: Annotated[str | None, without_effect(ONE_MODEL)] = None
    query: Annotated[str, honoured("The query.")]
    documents: Annotated[list[str], honoured("The documents.")]
    top_k: Annotated[Positive | None, honoured("The number of results.")] = None
    return_documents: Annotated[bool | None, honoured("The answer repeats the documents.")] = None
    truncation: Annotated[bool | None, honoured("False refuses a text that is longer than the model takes.")] = None


def question(request: VoyageRequest) -> Question:
    """Each document with the query, and how to answer."""
    return Question(
        query_and_texts(request.query, request.documents, "documents"),
        top_n=request.top_k,
        shown=request.documents if request.return_documents else None,
        never_cut=NEVER_CUT if request.truncation is False else "",
    )


def answer(scored: Scored) -> dict[str, Any]:
    """{object, data: [{index, relevance_score, document?}], model, usage}; a document is a text."""
    usage = {"total_tokens": scored.tokens}
    return {"object": "list", "data": scored.ranked(), "model": scored.model, "usage": usage}


def error(refusal: RefusalError, status: int) -> dict[str, Any]:
    """{detail}."""
    return {"detail": str(refusal)}


BAD_REQUEST = {Reason.INVALID: 400, Reason.UNKNOWN_FIELD: 400, Reason.TOO_LARGE: 400}
VOYAGE = Dialect("voyage", VoyageRequest, question, answer, error, BAD_REQUEST, signs=frozenset({"top_k"}))
