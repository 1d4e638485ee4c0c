"""Embedder: the vectors of texts by a bi-encoder, over HTTP."""

from functools import partial
from typing import Any

import numpy as np

from rerank.models.bi_encoder import BiEncoder
from rerank.serving.dialects import Dialect
from rerank.serving.dialects.embeddings import Embedded, EmbedQuestion
from rerank.serving.dialects.fields import Body
from rerank.serving.limits import Limits
from rerank.serving.metrics import Metrics
from rerank.serving.refusals import Reason, RefusalError
from rerank.serving.responses import OneByOne

DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
"""What TEI calls precisions."""


class Embedder(OneByOne):
    """Answers requests for vectors. `name` is the model's, as answers give it."""

    def __init__(self, encoder: BiEncoder, name: str, limits: Limits, metrics: Metrics) -> None:
        super().__init__(limits, metrics)
        self.encoder, self.name = encoder, name

    def info(self) -> dict[str, Any]:
        """What TEI's `/info` says of an encoder."""
        return {
            "model_dtype": DTYPES.get(self.encoder.precision, self.encoder.precision),
            "model_type": {"embedding": {"pooling": self.encoder.facts()["pooling"]}},
            "max_concurrent_requests": self.limits.max_queue,
            "max_input_length": self.encoder.model.max_seq_length,
            "max_client_batch_size": self.limits.max_documents,
        }

    async def answer(self, dialect: Dialect, body: Body) -> Any:
        """The JSON of the answer to a request; raises RefusalError."""
        question: EmbedQuestion = dialect.read(body)
        self.limits.check_count(len(question.texts), "texts")
        return dialect.answer(await self.run(partial(self._embed, question), len(question.texts)))

    def _embed(self, question: EmbedQuestion) -> Embedded:
        model, prompts = self.encoder.model, self.encoder.model.prompts
        if question.prompt is not None and question.prompt not in prompts:
            raise RefusalError(Reason.INVALID, f"prompt_name: not one of the model's prompts: {', '.join(prompts)}")
        size = model.get_embedding_dimension()
        if question.dimensions and question.dimensions > size:
            raise RefusalError(Reason.INVALID, f"dimensions: got {question.dimensions}, expected at most {size}")
        lead = prompts.get(question.prompt or model.default_prompt_name or "", "")
        lengths = np.array([len(ids) for ids in model.tokenizer([lead + text for text in question.texts])["input_ids"]])
        limit = model.max_seq_length or lengths.max()
        if question.never_cut and (lengths > limit).any():
            raise RefusalError(
                Reason.TOO_LARGE, f"a text has too many tokens: the limit is {limit}; {question.never_cut}"
            )
        vectors = model.encode(
            list(question.texts),
            prompt_name=question.prompt,
            normalize_embeddings=question.normalise,
            truncate_dim=question.dimensions,
            show_progress_bar=False,
            convert_to_numpy=True,
        )
        if not np.isfinite(vectors).all():
            raise RefusalError(Reason.FAILED, "the model's vector is not finite; is the checkpoint broken?")
        return Embedded(question, vectors.astype(np.float32), int(lengths.clip(max=limit).sum()), self.name)
