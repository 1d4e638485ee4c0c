"""Opens a trained model as the settings of an experiment say."""

from rerank.config import Config
from rerank.models.reranker import Reranker
from rerank.training.device import select_device


def open_reranker(config: Config, checkpoint: str) -> Reranker:
    """The model of a checkpoint or of the hub, on the device of the settings.

    Raises UserError as `Reranker.load` does, and for a device that this machine does not have.
    """
    return Reranker.load(
        checkpoint,
        device=select_device(config.training.device),
        precision=config.training.precision,
        max_tokens_per_forward=config.training.max_tokens_per_forward,
        pooling=config.encoder.pooling,
        max_doc_tokens=config.encoder.max_doc_tokens,
        template=config.encoder.template,
    )
