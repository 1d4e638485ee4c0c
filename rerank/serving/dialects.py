"""The APIs of TEI, Jina, Cohere, vLLM, Infinity and Voyage: the fields of a request, its question, and its answer.

Fields that are refused or have no effect are in `fields`. A text that is too long is truncated at its end.
"""

import time
import uuid
from collections.abc import Sequence
from typing import Annotated, ClassVar, NamedTuple, TypeVar

import msgspec
import numpy as np
from scipy.special import expit

from rerank.serving.fields import check_fields, one_name
from rerank.serving.requests import Body, RefusalError, convert

OF_PAIRS = {
    "queries": "text_1",
    "data_1": "text_1",
    "documents": "text_2",
    "items": "text_2",
    "data_2": "text_2",
    "activation": "use_activation",
}
"""Other names of the fields of vLLM's pairs."""
OF_DOCUMENTS = {
    "max_doc_length": "max_tokens_per_doc",
    "top_k": "top_n",
    "activation": "use_activation",
    "truncate": "truncation",
}
"""Names in Jina, Voyage, TEI and older versions of vLLM -> names in `JinaRequest`."""

Text = TypeVar("Text", str, str | dict[str, object])


class Question(NamedTuple):
    """(query, document) texts to score, and the format of the answer.

    sigmoid: whether scores are mapped to 0 to 1.
    top_n: the number of results; None: all.
    shown: the documents that results repeat; None: they repeat none.
    max_doc_tokens: the tokens kept of a document; None: the model's limit.
    may_cut: whether texts may be truncated; otherwise the request is refused.
    """

    pairs: list[tuple[str, str]]
    sigmoid: bool = True
    top_n: int | None = None
    shown: Sequence[object] | None = None
    max_doc_tokens: int | None = None
    may_cut: bool = True


class Scored(NamedTuple):
    """The scores of a question's pairs.

    scores: (pairs,) float32, as `Reranker.score` gives them.
    tokens: the number of tokens that the model read, including query and special tokens.
    model: the name of the model.
    warnings: lines about truncated texts.
    """

    question: Question
    scores: np.ndarray
    tokens: int
    model: str
    warnings: Sequence[str] = ()

    def shown(self) -> list[float]:
        """The scores in the answer's scale."""
        scores = self.scores.astype(np.float64)
        return (expit(scores) if self.question.sigmoid else scores).tolist()  # type: ignore[no-any-return]

    def ranked(self, score: str = "relevance_score", document: str = "document") -> list[dict[str, object]]:
        """{index, score, document?} of the best `top_n` documents, best first; ties keep the given order."""
        best_first = np.argsort(-self.scores, kind="stable")[: self.question.top_n].tolist()
        scores, texts = self.shown(), self.question.shown
        return [
            {"index": index, score: scores[index]} | ({} if texts is None else {document: texts[index]})
            for index in best_first
        ]


class TeiRequest(msgspec.Struct):
    """`POST /rerank` of Text Embeddings Inference, as in its openapi.json (1.8), and litellm's `top_n`."""

    query: str
    texts: list[str]
    top_n: Annotated[int, msgspec.Meta(ge=0)] | None = None
    raw_scores: bool | None = None
    return_text: bool | None = None
    truncate: bool | None = None

    def question(self) -> Question:
        return Question(
            _pairs(self.query, _not_empty("texts", self.texts)),
            sigmoid=not self.raw_scores,
            top_n=self.top_n or None,
            shown=self.texts if self.return_text else None,
            may_cut=self.truncate is not False,
        )

    def answer(self, scored: Scored) -> object:
        """[{index, score, text?}], best first."""
        return scored.ranked("score", "text")


class JinaRequest(msgspec.Struct):
    """Jina's `POST /v1/rerank`, with the fields that clients of Cohere 1, vLLM, SiliconFlow and others send there.

    A document is a text, or an object whose `text` is ranked; results repeat it as given. `max_tokens_per_doc` is from
    Cohere and vLLM, and 0 means the model's limit; `use_activation` is from vLLM, `truncation` from Jina.
    """

    query: str
    documents: list[str | dict[str, object]]
    top_n: Annotated[int, msgspec.Meta(ge=0)] | None = None
    return_documents: bool | None = None
    max_tokens_per_doc: Annotated[int, msgspec.Meta(ge=0)] | None = None
    use_activation: bool | None = None
    truncation: bool | None = None
    version: ClassVar[str] = "1"

    def question(self) -> Question:
        documents = _not_empty("documents", self.documents)
        texts = [_text_of(document, place) for place, document in enumerate(documents)]
        repeated = self.return_documents if self.return_documents is not None else self.version == "1"
        return Question(
            _pairs(self.query, texts),
            sigmoid=self.use_activation is not False,
            top_n=self.top_n or None,
            shown=self.repeated(texts) if repeated else None,
            max_doc_tokens=self.max_tokens_per_doc or None,
            may_cut=self.truncation is not False,
        )

    def repeated(self, texts: list[str]) -> Sequence[object]:
        """The documents that results repeat: objects with all of their keys."""
        return [{"text": document} if isinstance(document, str) else document for document in self.documents]

    def answer(self, scored: Scored) -> dict[str, object]:
        """{id, object, created, model, usage, results: [{index, relevance_score, document?}], meta}, best first.

        Cohere's clients read `meta`; nothing is billed.
        """
        meta: dict[str, object] = {
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
        question = super().question()
        return question._replace(sigmoid=question.sigmoid and not self.raw_scores)

    def repeated(self, texts: list[str]) -> Sequence[object]:
        return texts

    def answer(self, scored: Scored) -> dict[str, object]:
        """As Jina's, with the object that Infinity's client expects."""
        return {**super().answer(scored), "object": "rerank"}


class VoyageRequest(InfinityRequest):
    """Voyage's `POST /v1/rerank`, whose `top_k` is the number of results."""

    def answer(self, scored: Scored) -> dict[str, object]:
        """{object, data: [{index, relevance_score, document?}], model, usage}, best first."""
        usage = {"total_tokens": scored.tokens}
        return {"object": "list", "data": scored.ranked(), "model": scored.model, "usage": usage}


class ScoreRequest(msgspec.Struct):
    """vLLM's `POST /score`: pairs one text with every text of the other side, or two sides of equal length in order."""

    text_1: str | list[str]
    text_2: str | list[str]
    use_activation: bool | None = None
    max_tokens_per_doc: Annotated[int, msgspec.Meta(ge=0)] | None = None

    def question(self) -> Question:
        sides = {"text_1": self.text_1, "text_2": self.text_2}
        queries, documents = (
            _not_empty(name, [texts] if isinstance(texts, str) else texts) for name, texts in sides.items()
        )
        for place, query in enumerate(queries):
            _check_query(query, f"text_1[{place}]")
        queries = queries * len(documents) if len(queries) == 1 else queries
        documents = documents * len(queries) if len(documents) == 1 else documents
        if len(queries) != len(documents):
            got = f"text_1 and text_2: {len(queries)} and {len(documents)} texts"
            raise RefusalError(422, f"{got}; expected equal numbers, or one text on one side")
        return Question(
            list(zip(queries, documents, strict=True)),
            sigmoid=self.use_activation is not False,
            max_doc_tokens=self.max_tokens_per_doc or None,
        )

    def answer(self, scored: Scored) -> object:
        """{id, object, created, model, usage, data: [{index, object, score}]}, in the order of the pairs."""
        rows = [{"index": index, "object": "score", "score": score} for index, score in enumerate(scored.shown())]
        return _listed(scored) | {"data": rows}


Asked = TeiRequest | JinaRequest | ScoreRequest
"""The fields of a request; CohereRequest and others are kinds of JinaRequest."""

KINDS: dict[str, tuple[type[Asked], dict[str, str]]] = {
    "/": (TeiRequest, {}),
    "/rerank": (JinaRequest, OF_DOCUMENTS),
    "/invocations": (JinaRequest, OF_DOCUMENTS),
    "/v1/rerank": (JinaRequest, OF_DOCUMENTS),
    "/v2/rerank": (CohereRequest, OF_DOCUMENTS),
    "/score": (ScoreRequest, OF_PAIRS),
    "/v1/score": (ScoreRequest, OF_PAIRS),
    "/infinity/rerank": (InfinityRequest, OF_DOCUMENTS),
    "/voyage/v1/rerank": (VoyageRequest, OF_DOCUMENTS),
}
"""Path -> the request, and other names of its fields. A request with `texts`, not `documents`, is TEI's.

`/` is TEI's, and `/invocations` is called by SageMaker.
"""
PATHS = tuple(KINDS)


def request_of(path: str, body: Body) -> Asked:
    """Parses a JSON object sent to one of PATHS; raises RefusalError for an unsupported field."""
    kind, names = KINDS[path]
    is_either = path in ("/rerank", "/invocations")
    if kind is JinaRequest and body.get("documents") is None and ("texts" in body or is_either):
        kind, names = TeiRequest, {}
    elif kind not in (ScoreRequest, TeiRequest) and body.get("texts") is not None:
        raise RefusalError(422, "texts, documents: two names of the same field; expected one of them")
    known = {field.name for field in msgspec.structs.fields(kind)}
    return convert(check_fields(one_name(body, names), known), kind)


def _pairs(query: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    """The query with each text; raises RefusalError as `_check_query`."""
    _check_query(query, "query")
    return [(query, text) for text in texts]


def _check_query(query: str, name: str) -> None:
    """Raises RefusalError for a query without text, as its scores would be arbitrary."""
    if not query.strip():
        raise RefusalError(422, f"{name}: is empty; expected a text")


def _text_of(document: str | dict[str, object], place: int) -> str:
    """The text of a document; raises RefusalError for an object without one."""
    text = document if isinstance(document, str) else document.get("text")
    if not isinstance(text, str):
        raise RefusalError(422, f"documents[{place}]: expected a text, or an object with the key text")
    return text


def _not_empty(name: str, texts: list[Text]) -> list[Text]:
    """The texts of a field; raises RefusalError if there is none."""
    if not texts:
        raise RefusalError(400, f"{name}: is empty, expected one text or more", "Empty")
    return texts


def _listed(scored: Scored) -> dict[str, object]:
    return {
        "id": f"rerank-{uuid.uuid4().hex}",
        "object": "list",
        "created": int(time.time()),
        "model": scored.model,
        "usage": {"prompt_tokens": scored.tokens, "total_tokens": scored.tokens},
    }
