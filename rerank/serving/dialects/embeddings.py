"""Vectors of texts: `POST /embed` as Text Embeddings Inference, `POST /v1/embeddings` as OpenAI."""

import base64
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from rerank.serving.dialects import tei, vllm
from rerank.serving.dialects.dialect import Dialect
from rerank.serving.dialects.fields import Request, honoured, without_effect
from rerank.serving.dialects.jina import ONE_MODEL, Positive
from rerank.serving.questions import as_list
from rerank.serving.refusals import Reason

Texts = str | list[str]


class EmbedQuestion(NamedTuple):
    """Texts to embed.

    prompt: the name of one of the model's prompts; normalise: vectors get length 1; dimensions: the first of each
    vector that are kept, None for all; encoded: vectors are base64 of float32; never_cut: as that of a `Question`.
    """

    texts: Sequence[str]
    prompt: str | None = None
    normalise: bool = True
    dimensions: int | None = None
    encoded: bool = False
    never_cut: str = ""


class Embedded(NamedTuple):
    """(texts, dimensions) float32 vectors of a question, and the tokens that the model read."""

    question: EmbedQuestion
    vectors: np.ndarray
    tokens: int
    model: str


class TeiEmbedRequest(Request, kw_only=True):
    """Fields that TEI does not know are passed over, as it does."""

    inputs: Annotated[Texts, honoured("The texts.")]
    truncate: Annotated[bool | None, honoured("False refuses a text that is longer than the model reads.")] = None
    truncation_direction: tei.Direction = None
    prompt_name: Annotated[str | None, honoured("The name of one of the model's prompts.")] = None
    normalize: Annotated[bool | None, honoured("False: vectors as the model gives them; else of length 1.")] = None
    dimensions: Annotated[Positive | None, honoured("The first numbers of a vector that are kept.")] = None


class OpenAiRequest(Request, kw_only=True):
    """Other fields are passed over."""

    input: Annotated[Texts, honoured("The texts.")]
    model: Annotated[str | None, without_effect(ONE_MODEL)] = None
    encoding_format: Annotated[
        Annotated[str, msgspec.Meta(pattern="^(float|base64)$")] | None, honoured("float, or base64 of float32.")
    ] = None
    dimensions: Annotated[Positive | None, honoured("The first numbers of a vector that are kept.")] = None
    user: Annotated[str | None, without_effect("It names who asks.")] = None


def tei_question(request: TeiEmbedRequest) -> EmbedQuestion:
    """The texts, and how to embed them."""
    return EmbedQuestion(
        as_list("inputs", request.inputs),
        request.prompt_name,
        request.normalize is not False,
        request.dimensions,
        never_cut=tei.never_cut(request.truncate, request.truncation_direction),
    )


def openai_question(request: OpenAiRequest) -> EmbedQuestion:
    """The texts, and how to embed them."""
    encoded = request.encoding_format == "base64"
    return EmbedQuestion(as_list("input", request.input), dimensions=request.dimensions, encoded=encoded)


def tei_answer(found: Embedded) -> list[list[float]]:
    """[[number]], a list for each text."""
    return found.vectors.tolist()  # type: ignore[no-any-return]


def openai_answer(found: Embedded) -> dict[str, Any]:
    """{object, data: [{object, index, embedding}], model, usage}."""
    rows = [
        base64.b64encode(row.astype("<f4").tobytes()).decode() if found.question.encoded else row.tolist()
        for row in found.vectors
    ]
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)],
        "model": found.model,
        "usage": {"prompt_tokens": found.tokens, "total_tokens": found.tokens},
    }


TEI_EMBED = Dialect("tei", TeiEmbedRequest, tei_question, tei_answer, tei.error, {Reason.FAILED: 424}, strict=True)
OPENAI = Dialect("openai", OpenAiRequest, openai_question, openai_answer, vllm.error, {Reason.INVALID: 400})
