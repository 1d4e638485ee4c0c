"""Text Embeddings Inference: `POST /rerank`; fields and errors are those of its openapi.json (1.8) and types.rs."""

from typing import Annotated, Any

from rerank.serving.dialects.dialect import Dialect
from rerank.serving.dialects.fields import DIRECTION, Request, honoured
from rerank.serving.questions import Question, Scored, query_and_texts
from rerank.serving.refusals import Reason, RefusalError

ERROR_TYPES = {
    Reason.EMPTY: "Empty",
    Reason.OVERLOADED: "Overloaded",
    Reason.FAILED: "Backend",
    Reason.INTERNAL: "Backend",
    Reason.UNHEALTHY: "Unhealthy",
}
CUT = "truncate: true cuts it"
CUT_LEFT = "truncation_direction: left is not supported, right cuts it at its end"


Direction = Annotated[
    Annotated[str, DIRECTION] | None, honoured("Left refuses a text that would be cut, which is cut at its end.")
]


class TeiRequest(Request):
    """Fields that TEI does not know are passed over, as it does."""

    query: Annotated[str, honoured("The query.")]
    texts: Annotated[list[str], honoured("The documents.")]
    raw_scores: Annotated[bool | None, honoured("The score itself, and not its sigmoid.")] = None
    return_text: Annotated[bool | None, honoured("The answer repeats the documents.")] = None
    truncate: Annotated[
        bool | None, honoured("False refuses a text that is longer than the model takes; else it is cut.")
    ] = None
    truncation_direction: Direction = None


def never_cut(truncate: bool | None, direction: str | None) -> str:
    """Why a text that is too long is refused; "" if it is cut."""
    if truncate is False:
        return CUT
    return CUT_LEFT if (direction or "right").lower() == "left" else ""


def question(request: TeiRequest) -> Question:
    """{query, texts[]} and how to answer."""
    return Question(
        query_and_texts(request.query, request.texts, "texts"),
        sigmoid=not request.raw_scores,
        shown=request.texts if request.return_text else None,
        never_cut=never_cut(request.truncate, request.truncation_direction),
    )


def answer(scored: Scored) -> list[dict[str, Any]]:
    """[{index, score, text?}], best first."""
    names = {"relevance_score": "score", "document": "text"}
    return [{names.get(name, name): value for name, value in result.items()} for result in scored.ranked()]


def error(refusal: RefusalError, status: int) -> dict[str, Any]:
    """{error, error_type}."""
    return {"error": str(refusal), "error_type": ERROR_TYPES.get(refusal.reason, "Validation")}


TEI = Dialect("tei", TeiRequest, question, answer, error, {Reason.FAILED: 424}, strict=True, signs=frozenset({"texts"}))
