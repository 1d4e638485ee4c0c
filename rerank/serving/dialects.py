"""The APIs of TEI, Jina, Cohere and vLLM: the fields of a request, what it asks, and the JSON of its answer.

A field that is not here is passed over. A text that is too long is cut at its end.
"""

import time
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
import numpy as np
from scipy.special import expit

from rerank.serving.requests import Body, RefusalError, convert

PATHS = ("/rerank", "/v1/rerank", "/v2/rerank", "/score", "/v1/score")
"""Where requests for scores are answered."""
OTHER_NAMES = {"queries": "text_1", "documents": "text_2"}
"""Other names of the two sides of vLLM's pairs."""


class Question(NamedTuple):
    """(query, document) texts to score, and how the answer shows them.

    sigmoid: scores are mapped to 0 to 1; top_n: the number of results, None for all; shown: the documents as the
    results repeat them, None if they do not; max_doc_tokens: the tokens kept of a document, None for the model's.
    """

    pairs: list[tuple[str, str]]
    sigmoid: bool = True
    top_n: int | None = None
    shown: Sequence[Any] | None = None
    max_doc_tokens: int | None = None


class Scored(NamedTuple):
    """The scores of a question's pairs, in their order: (pairs,) float32, as `Reranker.score` gives them.

    `tokens` are those that the model read, query and special tokens included; `model` is its name.
    """

    question: Question
    scores: np.ndarray
    tokens: int
    model: str

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

    def question(self) -> Question:
        return Question(
            [(self.query, text) for text in _some("texts", self.texts)],
            sigmoid=not self.raw_scores,
            shown=self.texts if self.return_text else None,
        )

    def answer(self, scored: Scored) -> Any:
        """[{index, score, text?}], best first."""
        return scored.ranked("score", "text")


class Text(msgspec.Struct):
    """A document as an object."""

    text: str


class JinaRequest(msgspec.Struct):
    """Jina's `POST /v1/rerank`, with what clients of Cohere 1, vLLM, SiliconFlow and others send there.

    `max_doc_length` is Jina's name of Cohere's and vLLM's `max_tokens_per_doc`; `use_activation` is vLLM's.
    """

    query: str
    documents: list[str | Text]
    top_n: Annotated[int, msgspec.Meta(ge=0)] | None = None
    return_documents: bool | None = None
    max_tokens_per_doc: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_doc_length: Annotated[int, msgspec.Meta(ge=1)] | None = None
    use_activation: bool | None = None
    version: ClassVar[str] = "1"

    def question(self) -> Question:
        texts = [one if isinstance(one, str) else one.text for one in _some("documents", self.documents)]
        repeated = self.return_documents if self.return_documents is not None else self.version == "1"
        return Question(
            [(self.query, text) for text in texts],
            sigmoid=self.use_activation is not False,
            top_n=self.top_n or None,
            shown=[{"text": text} for text in texts] if repeated else None,
            max_doc_tokens=self.max_tokens_per_doc or self.max_doc_length,
        )

    def answer(self, scored: Scored) -> Any:
        """{id, object, created, model, usage, results: [{index, relevance_score, document?}], meta}, best first.

        `meta` is what Cohere's clients read; nothing is billed.
        """
        meta = {
            "api_version": {"version": self.version, "is_experimental": False},
            "billed_units": {"search_units": 0},
            "tokens": {"input_tokens": scored.tokens, "output_tokens": 0},
        }
        return _listed(scored) | {"results": scored.ranked(), "meta": meta}


class CohereRequest(JinaRequest):
    """Cohere's `POST /v2/rerank`."""

    version: ClassVar[str] = "2"


class ScoreRequest(msgspec.Struct):
    """vLLM's `POST /score`: one query is paired with every document; several with as many documents, one by one."""

    text_1: str | list[str]
    text_2: str | list[str]
    use_activation: bool | None = None

    def question(self) -> Question:
        sides = {"text_1": self.text_1, "text_2": self.text_2}
        queries, documents = (_some(name, [of] if isinstance(of, str) else of) for name, of in sides.items())
        queries = queries * len(documents) if len(queries) == 1 else queries
        if len(queries) != len(documents):
            got = f"text_1 and text_2: {len(queries)} and {len(documents)} texts"
            raise RefusalError(422, f"{got}; expected as many, or one and any number")
        return Question(list(zip(queries, documents, strict=True)), sigmoid=self.use_activation is not False)

    def answer(self, scored: Scored) -> Any:
        """{id, object, created, model, usage, data: [{index, object, score}]}, in the order of the pairs."""
        rows = [{"index": index, "object": "score", "score": score} for index, score in enumerate(scored.shown())]
        return _listed(scored) | {"data": rows}


def request_of(path: str, body: Body) -> TeiRequest | JinaRequest | ScoreRequest:
    """The request of a JSON object to one of PATHS; raises RefusalError."""
    if path.endswith("/score"):
        return convert({OTHER_NAMES.get(name, name): value for name, value in body.items()}, ScoreRequest)
    if "documents" not in body and ("texts" in body or path == "/rerank"):
        return convert(body, TeiRequest)
    return convert(body, CohereRequest if path == "/v2/rerank" else JinaRequest)


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
