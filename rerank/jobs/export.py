"""Writes a trained model as a graph for a CPU (`rerank export`)."""

from pathlib import Path

import torch

from rerank.config import EncoderSettings
from rerank.models.checkpoints import open_trained_cross_encoder
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.export.folder import write_export
from rerank.models.export.formats import check_packages
from rerank.models.hub import encoder_folder
from rerank.models.reranker import Reranker
from rerank.models.text_scorer import TextScorer
from rerank.utils.files import atomic_write


def export_checkpoint(settings: EncoderSettings, checkpoint: str, folder: Path, form: str, int8: bool) -> Path:
    """Writes the new folder of a graph and returns it.

    Args:
        settings: the pooling, the length of documents and the template of a model that was saved without them.
        checkpoint: the folder of a trained model, or the name of a cross-encoder on the hub.
        folder: the folder to write.
        form: a key of FORMATS.
        int8: whether products are those of integers.

    Raises UserError if the model has no trained head or cannot be exported, and if a package is missing.
    """
    check_packages(form, int8)
    encoder_folder(checkpoint)  # refuses an exported graph
    trained = open_trained_cross_encoder(checkpoint, settings.pooling, settings.max_doc_tokens, settings.template)
    model = Reranker(TextScorer(trained, torch.device("cpu"), "float32"), checkpoint)
    with atomic_write(folder) as tmp:
        write_graph(tmp, model, form, int8)
    return folder


def write_graph(folder: Path, model: Reranker, form: str, int8: bool) -> Reranker:
    """Writes the folder of a graph and opens it. Raises UserError for a model that cannot be exported."""
    scorer, weights = model.scorer, model.model
    assert isinstance(weights, CrossEncoder)  # no graph
    write_export(folder, model.name, weights, scorer.tokenizer, scorer.max_doc_tokens, form, int8)
    return Reranker.load(folder, device="cpu")
