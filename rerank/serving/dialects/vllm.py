"""vLLM's score API: `POST /score`."""

import time
import uuid
from typing import Any

from rerank.serving.dialects.dialect import Dialect
from rerank.serving.questions import Body, Question, Scored, field, texts
from rerank.serving.refusals import Reason, RefusalError

TYPES = {
    Reason.UNAUTHORISED: "UnauthorizedError",
    Reason.OVERLOADED: "RateLimitError",
    Reason.FAILED: "InternalServerError",
    Reason.INTERNAL: "InternalServerError",
    Reason.UNHEALTHY: "ServiceUnavailableError",
}


def read(body: Body) -> Question:
    """{model, text_1, text_2} or {model, queries, documents}, each a text or a list, and `use_activation`.

    One query is paired with every document; several are paired with as many documents, one by one.
    """
    field(body, "model", str | None)
    first, second = ("queries", "documents") if "queries" in body else ("text_1", "text_2")
    queries, documents = (texts(body, name, str | list[str]) for name in (first, second))
    if len(queries) not in (1, len(documents)):
        raise RefusalError(
            Reason.INVALID,
            f"{first}, {second}: {len(queries)} and {len(documents)} texts; expected as many, or one and any number",
        )
    queries = queries * len(documents) if len(queries) == 1 else queries
    flags = [field(body, name, bool | None) for name in ("use_activation", "activation")]
    return Question(list(zip(queries, documents, strict=True)), sigmoid=next((f for f in flags if f is not None), True))


def answer(scored: Scored) -> dict[str, Any]:
    """{id, object, created, model, data: [{index, object, score}], usage}, in the order of the pairs."""
    return {
        "id": f"score-{uuid.uuid4().hex}",
        "object": "list",
        "created": int(time.time()),
        "model": scored.model,
        "data": [
            {"index": index, "object": "score", "score": scored.shown(index)} for index in range(len(scored.scores))
        ],
        "usage": {
            "prompt_tokens": scored.tokens,
            "total_tokens": scored.tokens,
            "completion_tokens": 0,
            "prompt_tokens_details": None,
        },
    }


def error(refusal: RefusalError, status: int) -> dict[str, Any]:
    """{error: {message, type, param, code}}."""
    kind = TYPES.get(refusal.reason, "BadRequestError")
    return {"error": {"message": str(refusal), "type": kind, "param": None, "code": status}}


VLLM = Dialect("vllm", read, answer, error, {Reason.INVALID: 400})
