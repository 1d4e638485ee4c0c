"""The APIs of TEI, Jina, Cohere, vLLM, Infinity and Voyage: a request's fields, what it asks, and its answer's JSON.

`fields` has those that are refused, or have no effect. A text that is too long is cut at its end.
"""

import time
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
import numpy as np
from scipy.special import expit

from rerank.serving.fields import check_fields, one_name
from rerank.serving.requests import Body, RefusalError, convert

OF_PAIRS = {"queries": "text_1", "data_1": "text_1", "documents": "text_2", "items": "text_2", "data_2": "text_2"}
OF_PAIRS["activation"] = "use_activation"
"""Other names of the fields of vLLM's pairs."""
OF_DOCUMENTS = {"max_doc_length": "max_tokens_per_doc", "top_k": "top_n", "activation": "use_activation"}
OF_DOCUMENTS["truncate"] = "truncation"
"""Names of Jina, Voyage, TEI and older versions of vLLM -> names in `JinaRequest`."""


class Question(NamedTuple):
    """(query, document) texts to score, and how the answer shows them.

    sigmoid: scores are mapped to 0 to 1; top_n: the number of results, None for all; shown: the documents as the
    results repeat them, None if they do not; max_doc_tokens: the tokens kept of a document, None for the model's;
    may_cut: whether a text may be cut, or the request is refused.
    """

    pairs: list[tuple[str, str]]
    sigmoid: bool = True
    top_n: int | None = None
    shown: Sequence[Any] | None = None
    max_doc_tokens: int | None = None
    may_cut: bool = True


class Scored(NamedTuple):
    """The scores of a question's pairs, in their order: (pairs,) float32, as `Reranker.score` gives them.

    `tokens` are those that the model read, query and special tokens included; `model` is its name; `warnings` are lines
    on what was cut.
    """

    question: Question
    scores: np.ndarray
    tokens: int
    model: str
    warnings: Sequence[str] = ()

    def shown(self) -> list[float]:
        """The scores as the answer gives them."""
        scores = self.scores.astype(np.float64)
        return (expit(scores) if self.question.sigmoid else scores).tolist()  # type: ignore[no-any-return]

    def ranked(self, score: str = "relevance_score", document: str = "document") -> list[dict[str, Any]]:
        """{index, score, document?} of the best `top_n` documents, best first; ties stay in their order."""
        best_first = np.argsort(-self.scores, kind="stable")[: self.question.top_n].tolist()
        scores, texts = self.shown(), self.question.shown
        return [
            {"index": index, score: scores[index]} | ({} if texts is None else {document: texts[index]})
            for index in best_first
        ]


class TeiRequest(msgspec.Struct):
    """`POST /rerank` of Text Embeddings Inference, as in its openapi.json (1.8)."""

    query: str
    texts: list[str]
    raw_scores: bool | None = None
    return_text: bool | None = None
    truncate: bool | None = None

    def question(self) -> Question:
        return Question(
            [(_query(self.query), text) for text in _some("texts", self.texts)],
            sigmoid=not self.raw_scores,
            shown=self.texts if self.return_text else None,
            may_cut=self.truncate is not False,
        )

    def answer(self, scored: Scored) -> Any:
        """[{index, score, text?}], best first."""
        return scored.ranked("score", "text")


class JinaRequest(msgspec.Struct):
    """Jina's `POST /v1/rerank`, with what clients of Cohere 1, vLLM, SiliconFlow and others send there.

    A document is a text, or an object whose `text` is ranked; results repeat it as it was given. `max_tokens_per_doc`
    is Cohere's and vLLM's, where 0 is no limit but the model's; `use_activation` is vLLM's, `truncation` Jina's.
    """

    query: str
    documents: list[str | dict[str, Any]]
    top_n: Annotated[int, msgspec.Meta(ge=0)] | None = None
    return_documents: bool | None = None
    max_tokens_per_doc: Annotated[int, msgspec.Meta(ge=0)] | None = None
    use_activation: bool | None = None
    truncation: bool | None = None
    version: ClassVar[str] = "1"

    def question(self) -> Question:
        texts = [_text_of(document, place) for place, document in enumerate(_some("documents", self.documents))]
        repeated = self.return_documents if self.return_documents is not None else self.version == "1"
        return Question(
            [(_query(self.query), text) for text in texts],
            sigmoid=self.use_activation is not False,
            top_n=self.top_n or None,
            shown=self.repeated(texts) if repeated else None,
            max_doc_tokens=self.max_tokens_per_doc or None,
            may_cut=self.truncation is not False,
        )

    def repeated(self, texts: list[str]) -> list[Any]:
        """The documents as results repeat them: objects with all of their keys."""
        return [{"text": document} if isinstance(document, str) else document for document in self.documents]

    def answer(self, scored: Scored) -> Any:
        """{id, object, created, model, usage, results: [{index, relevance_score, document?}], meta}, best first.

        `meta` is what Cohere's clients read; nothing is billed.
        """
        meta = {
            "api_version": {"version": self.version, "is_experimental": False},
            "billed_units": {"search_units": 0},
            "tokens": {"input_tokens": scored.tokens, "output_tokens": 0},
        }
        if scored.warnings:
            meta["warnings"] = list(scored.warnings)
        return _listed(scored) | {"results": scored.ranked(), "meta": meta}


class CohereRequest(JinaRequest):
    """Cohere's `POST /v2/rerank`."""

    version: ClassVar[str] = "2"


class InfinityRequest(JinaRequest):
    """Infinity's `POST /rerank`: results repeat a document as a text."""

    raw_scores: bool | None = None
    version: ClassVar[str] = "2"  # documents are not repeated by default

    def question(self) -> Question:
        return super().question()._replace(sigmoid=not self.raw_scores)

    def repeated(self, texts: list[str]) -> list[Any]:
        return texts


class VoyageRequest(InfinityRequest):
    """Voyage's `POST /v1/rerank`, whose `top_k` is the number of results."""

    def answer(self, scored: Scored) -> Any:
        """{object, data: [{index, relevance_score, document?}], model, usage}, best first."""
        usage = {"total_tokens": scored.tokens}
        return {"object": "list", "data": scored.ranked(), "model": scored.model, "usage": usage}


class ScoreRequest(msgspec.Struct):
    """vLLM's `POST /score`: a text of one side is paired with every text of the other, or both sides one by one."""

    text_1: str | list[str]
    text_2: str | list[str]
    use_activation: bool | None = None
    max_tokens_per_doc: Annotated[int, msgspec.Meta(ge=0)] | None = None

    def question(self) -> Question:
        sides = {"text_1": self.text_1, "text_2": self.text_2}
        queries, documents = (_some(name, [of] if isinstance(of, str) else of) for name, of in sides.items())
        for place, query in enumerate(queries):
            _query(query, f"text_1[{place}]")
        queries = queries * len(documents) if len(queries) == 1 else queries
        documents = documents * len(queries) if len(documents) == 1 else documents
        if len(queries) != len(documents):
            got = f"text_1 and text_2: {len(queries)} and {len(documents)} texts"
            raise RefusalError(422, f"{got}; expected as many, or one and any number")
        return Question(
            list(zip(queries, documents, strict=True)),
            sigmoid=self.use_activation is not False,
            max_doc_tokens=self.max_tokens_per_doc or None,
        )

    def answer(self, scored: Scored) -> Any:
        """{id, object, created, model, usage, data: [{index, object, score}]}, in the order of the pairs."""
        rows = [{"index": index, "object": "score", "score": score} for index, score in enumerate(scored.shown())]
        return _listed(scored) | {"data": rows}


KINDS: dict[str, tuple[type[msgspec.Struct], dict[str, str]]] = {
    "/rerank": (JinaRequest, OF_DOCUMENTS),
    "/v1/rerank": (JinaRequest, OF_DOCUMENTS),
    "/v2/rerank": (CohereRequest, OF_DOCUMENTS),
    "/score": (ScoreRequest, OF_PAIRS),
    "/v1/score": (ScoreRequest, OF_PAIRS),
    "/infinity/rerank": (InfinityRequest, OF_DOCUMENTS),
    "/voyage/v1/rerank": (VoyageRequest, OF_DOCUMENTS),
}
"""Path -> the request, and other names of its fields. TEI's `/rerank` has `texts` in the place of `documents`."""
PATHS = tuple(KINDS)


def request_of(path: str, body: Body) -> Any:
    """The request of a JSON object to one of PATHS; raises RefusalError for a field that would change the answer."""
    kind, names = KINDS[path]
    if kind is JinaRequest and body.get("documents") is None and ("texts" in body or path == "/rerank"):
        kind, names = TeiRequest, {}
    elif kind is not ScoreRequest and body.get("texts") is not None:
        raise RefusalError(422, "texts, documents: two names of the same field; expected one of them")
    known = {field.name for field in msgspec.structs.fields(kind)}
    return convert(check_fields(one_name(body, names), known), kind)


def _query(query: str, name: str = "query") -> str:
    """The query; raises RefusalError if it has no text, since its scores would be arbitrary."""
    if not query.strip():
        raise RefusalError(422, f"{name}: is empty; expected a text")
    return query


def _text_of(document: str | dict[str, Any], place: int) -> str:
    """The text of a document; raises RefusalError for an object without one."""
    text = document if isinstance(document, str) else document.get("text")
    if not isinstance(text, str):
        raise RefusalError(422, f"documents[{place}]: expected a text, or an object with the key text")
    return text


def _some(name: str, texts: list[Any]) -> list[Any]:
    """The texts of a field; raises RefusalError if there are none."""
    if not texts:
        raise RefusalError(400, f"{name}: is empty, expected one text or more", "Empty")
    return texts


def _listed(scored: Scored) -> dict[str, Any]:
    return {
        "id": f"rerank-{uuid.uuid4().hex}",
        "object": "list",
        "created": int(time.time()),
        "model": scored.model,
        "usage": {"prompt_tokens": scored.tokens, "total_tokens": scored.tokens},
    }
