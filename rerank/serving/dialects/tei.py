"""Text Embeddings Inference: `POST /rerank`; fields and errors are those of its openapi.json (1.7) and types.rs."""

from typing import Any

from rerank.serving.dialects.dialect import Dialect
from rerank.serving.questions import Body, Question, Scored, field, text, texts
from rerank.serving.refusals import Reason, RefusalError

ERROR_TYPES = {
    Reason.EMPTY: "Empty",
    Reason.OVERLOADED: "Overloaded",
    Reason.FAILED: "Backend",
    Reason.INTERNAL: "Backend",
    Reason.UNHEALTHY: "Unhealthy",
}


def read(body: Body) -> Question:
    """{query, texts[], raw_scores, return_text, truncate}.

    `truncate` false refuses a text that is longer than the model takes; true, null or none cuts it (`auto_truncate`).
    """
    query = text(body, "query")
    return Question(
        pairs=[(query, document) for document in texts(body, "texts")],
        sigmoid=not field(body, "raw_scores", bool | None),
        with_texts=bool(field(body, "return_text", bool | None)),
        may_cut=field(body, "truncate", bool | None) is not False,
    )


def answer(scored: Scored) -> list[dict[str, Any]]:
    """[{index, score, text?}], best first."""
    with_texts = scored.question.with_texts
    return [
        {"index": index, "score": score} | ({"text": document} if with_texts else {})
        for index, score, document in scored.ranked()
    ]


def error(refusal: RefusalError, status: int) -> dict[str, Any]:
    """{error, error_type}."""
    return {"error": str(refusal), "error_type": ERROR_TYPES.get(refusal.reason, "Validation")}


TEI = Dialect("tei", read, answer, error, {Reason.FAILED: 424})
