"""Jina's re-ranker API, `POST /v1/rerank` and `POST /rerank` with `documents`, and what others share with it.

A request may have the fields of Jina, Cohere 1, SiliconFlow, Xinference and vLLM, and the answer has what a client of
any of them reads.
"""

import time
import uuid
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from rerank.serving.dialects.dialect import Dialect
from rerank.serving.dialects.fields import DIRECTION, Request, honoured, refused, without_effect
from rerank.serving.questions import Question, Scored, TextObject, as_list
from rerank.serving.refusals import Reason, RefusalError
from rerank.serving.token_limits import TokenLimits

Whole = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Document = str | dict[str, Any]
ONE_MODEL = "Any name is taken, as there is one model."
NEVER_CUT = "truncation: true cuts it"


class VllmFields(Request, kw_only=True):
    """The fields that vLLM's requests for scores and rankings share; those that it does not know are passed over."""

    model: Annotated[str | None, without_effect(ONE_MODEL)] = None
    user: Annotated[str | None, without_effect("It names who asks.")] = None
    request_id: Annotated[str | None, honoured("The answer's id ends with it.")] = None
    use_activation: Annotated[bool | None, honoured("False gives the score itself, and not its sigmoid.")] = None
    activation: Annotated[bool | None, honoured("An earlier name of use_activation.")] = None
    softmax: Annotated[bool | None, honoured("An earlier name of use_activation.")] = None
    max_tokens_per_query: Annotated[Whole | None, honoured("Tokens kept of a query; 0 for all.")] = None
    max_tokens_per_doc: Annotated[Whole | None, honoured("Tokens kept of a document; 0 for all.")] = None
    truncate_prompt_tokens: Annotated[
        Annotated[int, msgspec.Meta(ge=-1)] | None,
        honoured("Tokens kept of query and document together; -1 for all that the model takes."),
    ] = None
    truncation_side: Annotated[
        Annotated[str, DIRECTION] | None, honoured("left is refused with truncate_prompt_tokens: a text's end is cut.")
    ] = None
    padding: Annotated[str | None, without_effect("Scores do not depend on padding.")] = None
    priority: Annotated[int | None, refused("requests are answered in their order")] = None
    mm_processor_kwargs: Annotated[dict[str, Any] | None, without_effect("It is of images; texts are scored.")] = None
    cache_salt: Annotated[str | None, without_effect("No prompt is cached.")] = None
    normalize: Annotated[bool | None, refused("use_activation replaces it", (None,))] = None


class DocumentsRequest(VllmFields, kw_only=True):
    """Fields that none of these APIs has are passed over."""

    query: Annotated[str | TextObject, honoured("The query, a text or {text}.")]
    documents: Annotated[str | list[Document], honoured("The documents: texts, or objects with a text.")]
    top_n: Annotated[Whole | None, honoured("The number of results; 0 for all, as in vLLM.")] = None
    return_documents: Annotated[bool | None, honoured("False: the answer does not repeat the documents.")] = None
    rank_fields: Annotated[
        list[str] | None, honoured("Cohere: the keys of a document whose values are scored, one after the other.")
    ] = None
    max_chunks_per_doc: Annotated[Positive | None, honoured("Cohere: the passages kept of a document.")] = None
    overlap_tokens: Annotated[Whole | None, honoured("SiliconFlow: tokens that neighbouring passages share.")] = None
    max_doc_length: Annotated[Positive | None, honoured("Jina: tokens kept of a document.")] = None
    max_query_length: Annotated[Positive | None, honoured("Jina: tokens kept of the query.")] = None
    truncation: Annotated[bool | None, honoured("False refuses a text that is longer than the model takes.")] = None
    return_len: Annotated[bool | None, without_effect("Xinference: meta.tokens is in every answer.")] = None
    instruction: Annotated[str | None, refused("the model takes no instruction beside the query")] = None
    return_embeddings: Annotated[bool | None, refused("a cross-encoder has scores, and no vectors of texts")] = None


def vllm_question(request: VllmFields, pairs: list[tuple[str, str]]) -> Question:
    """The pairs with what vLLM's fields say. Raises RefusalError for a cut at the begin of a text."""
    kept = request.truncate_prompt_tokens
    if kept not in (None, -1) and (request.truncation_side or "right").lower() == "left":
        raise RefusalError(Reason.INVALID, "truncation_side: left is not supported; right cuts a text at its end")
    flags = (request.use_activation, request.activation, request.softmax)
    return Question(
        pairs,
        sigmoid=next((flag for flag in flags if flag is not None), True),
        limits=TokenLimits(
            document=request.max_tokens_per_doc or None,
            query=request.max_tokens_per_query or None,
            pair=None if kept == -1 else kept,
        ),
        request_id=request.request_id,
    )


def question(request: DocumentsRequest) -> Question:
    """Each document with the query, and how to answer."""
    documents = as_list("documents", request.documents)
    query = request.query if isinstance(request.query, str) else request.query.text
    asked = vllm_question(request, [(query, text) for text in texts_of(documents, request.rank_fields)])
    shown = [{"text": document} if isinstance(document, str) else document for document in documents]
    return asked._replace(
        top_n=request.top_n or None,
        shown=None if request.return_documents is False else shown,
        limits=asked.limits._replace(
            document=asked.limits.document or request.max_doc_length,
            query=asked.limits.query or request.max_query_length,
            passages=request.max_chunks_per_doc,
            overlap=request.overlap_tokens,
        ),
        never_cut=NEVER_CUT if request.truncation is False else "",
    )


def texts_of(documents: Sequence[Document], rank_fields: Sequence[str] | None = None) -> list[str]:
    """The texts that are scored: of an object, the values of `rank_fields` that it has, else its `text`.

    Raises RefusalError for an object without them, or with a value that is not a text.
    """
    found = []
    for number, document in enumerate(documents):
        if isinstance(document, str):
            found.append(document)
            continue
        names = [name for name in rank_fields or ("text",) if name in document]
        if not names:
            missing = "one of rank_fields" if rank_fields else "the field text"
            raise RefusalError(Reason.INVALID, f"documents[{number}]: expected a text, or an object with {missing}")
        for name in names:
            if not isinstance(document[name], str):
                place = "text" if not rank_fields else f"rank_fields[{rank_fields.index(name)}]"
                raise RefusalError(Reason.INVALID, f"documents[{number}]: {place}: expected a text")
        found.append(" ".join(document[name] for name in names))
    return found


def answer(scored: Scored) -> dict[str, Any]:
    """{id, object, created, model, usage, results: [{index, relevance_score, document?}], meta}, best first."""
    return {
        "id": identity("rerank-", scored),
        "object": "list",
        "created": int(time.time()),
        "model": scored.model,
        "usage": scored.usage(),
        "results": scored.ranked(),
        "meta": meta(scored, "1"),
    }


def error(refusal: RefusalError, status: int) -> dict[str, Any]:
    """{detail, message}: Jina's clients read the first, those of SiliconFlow and of Cohere's version 1 the second."""
    return {"detail": str(refusal), "message": str(refusal)}


def meta(scored: Scored, version: str) -> dict[str, Any]:
    """What Cohere's answers say of a request; nothing is billed."""
    return {
        "api_version": {"version": version, "is_experimental": False},
        "billed_units": {"search_units": 0},
        "tokens": {"input_tokens": scored.tokens, "output_tokens": 0},
    }


def identity(prefix: str, scored: Scored) -> str:
    """The name of an answer: the client's for its request, else a new one."""
    return prefix + (scored.question.request_id or uuid.uuid4().hex)


JINA = Dialect("jina", DocumentsRequest, question, answer, error)
