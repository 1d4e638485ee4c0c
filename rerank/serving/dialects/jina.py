"""Jina's re-ranker API: `POST /v1/rerank`, and `POST /rerank` with `documents`."""

from typing import Any

from rerank.serving.dialects.dialect import Dialect
from rerank.serving.questions import Body, Count, Question, Scored, TextObject, field, text, texts
from rerank.serving.refusals import RefusalError


def read(body: Body) -> Question:
    """{model, query, documents[], top_n, return_documents}; a document is a text or {"text": "…"}."""
    return read_documents(body)._replace(with_texts=field(body, "return_documents", bool | None) is not False)


def read_documents(body: Body) -> Question:
    """What Jina's and Cohere's requests have in common; any name of a model is taken, as there is one model."""
    field(body, "model", str | None)
    query = text(body, "query")
    return Question(
        pairs=[(query, document) for document in texts(body, "documents", list[str | TextObject])],
        top_n=field(body, "top_n", Count | None),
    )


def answer(scored: Scored) -> dict[str, Any]:
    """{model, object, usage, results: [{index, relevance_score, document?}]}, best first."""
    return {
        "model": scored.model,
        "object": "list",
        "usage": {"total_tokens": scored.tokens, "prompt_tokens": scored.tokens},
        "results": results(scored),
    }


def results(scored: Scored) -> list[dict[str, Any]]:
    """[{index, relevance_score, document?}], best first."""
    with_texts = scored.question.with_texts
    return [
        {"index": index, "relevance_score": score} | ({"document": {"text": document}} if with_texts else {})
        for index, score, document in scored.ranked()
    ]


def error(refusal: RefusalError, status: int) -> dict[str, Any]:
    """{detail}."""
    return {"detail": str(refusal)}


JINA = Dialect("jina", read, answer, error)
