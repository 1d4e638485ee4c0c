"""vLLM: `POST /score`, and `POST /rerank` with a field of its own."""

import time
from dataclasses import replace
from typing import Annotated, Any

from rerank.serving.dialects.cohere import CohereRequest
from rerank.serving.dialects.dialect import Dialect
from rerank.serving.dialects.fields import honoured, uses
from rerank.serving.dialects.jina import JINA, VllmFields, identity, vllm_question
from rerank.serving.questions import Question, Scored, as_list
from rerank.serving.refusals import Reason, RefusalError

TYPES = {
    Reason.UNAUTHORISED: "UnauthorizedError",
    Reason.OVERLOADED: "RateLimitError",
    Reason.FAILED: "InternalServerError",
    Reason.INTERNAL: "InternalServerError",
    Reason.UNHEALTHY: "ServiceUnavailableError",
}
SIDES = (("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"))
"""The names of the two sides of the pairs."""
Texts = str | list[str]


class ScoreRequest(VllmFields, kw_only=True):
    """One query is paired with every document; several are paired with as many documents, one by one."""

    queries: Annotated[Texts | None, honoured("The queries, with documents or items.")] = None
    documents: Annotated[Texts | None, honoured("The documents, with queries.")] = None
    items: Annotated[Texts | None, honoured("The documents, with queries.")] = None
    data_1: Annotated[Texts | None, honoured("The queries, with data_2.")] = None
    data_2: Annotated[Texts | None, honoured("The documents, with data_1.")] = None
    text_1: Annotated[Texts | None, honoured("The queries, with text_2.")] = None
    text_2: Annotated[Texts | None, honoured("The documents, with text_1.")] = None


def question(request: ScoreRequest) -> Question:
    """The pairs, and how to answer."""
    sides = {names: (getattr(request, names[0]), getattr(request, names[1])) for names in SIDES}
    complete = {names: texts for names, texts in sides.items() if None not in texts}
    if len(complete) != 1:
        expected = ", or ".join(" and ".join(names) for names in reversed(SIDES))
        raise RefusalError(Reason.INVALID, f"text_1, text_2: expected two lists of texts, {expected}")
    ((names, texts),) = complete.items()
    queries, documents = map(as_list, names, texts)
    if len(queries) not in (1, len(documents)):
        counts = f"{len(queries)} and {len(documents)} texts"
        raise RefusalError(Reason.INVALID, f"{names[0]}, {names[1]}: {counts}; expected as many, or one and any number")
    queries = queries * len(documents) if len(queries) == 1 else queries
    return vllm_question(request, list(zip(queries, documents, strict=True)))


def answer(scored: Scored) -> dict[str, Any]:
    """{id, object, created, model, data: [{index, object, score}], usage}, in the order of the pairs."""
    return {
        "id": identity("score-", scored),
        "object": "list",
        "created": int(time.time()),
        "model": scored.model,
        "data": [
            {"index": index, "object": "score", "score": scored.shown(index)} for index in range(len(scored.scores))
        ],
        "usage": scored.usage() | {"completion_tokens": 0, "prompt_tokens_details": None},
    }


def error(refusal: RefusalError, status: int) -> dict[str, Any]:
    """{error: {message, type, param, code}}."""
    kind = TYPES.get(refusal.reason, "BadRequestError")
    return {"error": {"message": str(refusal), "type": kind, "param": None, "code": status}}


OWN = frozenset(uses(VllmFields)) - frozenset(uses(CohereRequest))
BAD_REQUEST = {Reason.INVALID: 400}
VLLM_SCORE = Dialect("vllm", ScoreRequest, question, answer, error, BAD_REQUEST)
VLLM_RERANK = replace(JINA, name="vllm", error=error, statuses=BAD_REQUEST, signs=OWN)
