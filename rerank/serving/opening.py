"""Opens the model of a server."""

from typing import Literal

from rerank.config import Config
from rerank.models.reranker import Reranker
from rerank.serving.limits import Limits
from rerank.serving.service import Service
from rerank.training.device import select_device
from rerank.utils.parameters import LARGEST_WHOLE


def open_service(
    checkpoint: str, config: Config, max_doc_tokens: int | Literal["all"] | None, limits: Limits
) -> Service:
    """The service of a checkpoint, not started.

    `max_doc_tokens` are the tokens kept of a document; None are those that the checkpoint was trained with. Raises
    UserError as `Reranker.load` does, and for a device that this machine does not have.
    """
    reranker = Reranker.load(
        checkpoint,
        device=select_device(config.training.device),
        precision=config.training.precision,
        max_tokens_per_forward=config.training.max_tokens_per_forward,
        pooling=config.encoder.pooling,
        template=config.encoder.template,
    )
    if max_doc_tokens is not None:
        reranker.max_doc_tokens = LARGEST_WHOLE if max_doc_tokens == "all" else max_doc_tokens
    return Service(reranker, checkpoint, limits)
