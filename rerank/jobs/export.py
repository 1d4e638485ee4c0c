"""Writes a trained model as a graph for a CPU, and measures how far its scores agree (`rerank export`)."""

from pathlib import Path

import torch

from rerank.config import Config
from rerank.evaluation.agreement import agreement_of
from rerank.jobs.model_card import write_export_card
from rerank.jobs.sample import sample_of_run
from rerank.jobs.scoring import open_queried
from rerank.models.checkpoints import TrainedCrossEncoder, open_trained_weights
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.export.folder import FORMATS, write_export
from rerank.models.reranker import Reranker
from rerank.models.text_scorer import TextScorer
from rerank.utils.files import atomic_write
from rerank.utils.progress import log, progress


def export_checkpoint(config: Config, checkpoint: str, folder: Path, form: str, int8: bool, run: Path | None) -> Path:
    """Writes the new folder of a graph, with a model card, and returns it.

    Args:
        config: the pooling, the length of documents and the template of a model that was saved without them; the
            collection of the run, by default the one that the checkpoint was trained on, and its queries.
        checkpoint: the folder of a trained model, or the name of a cross-encoder on the hub.
        folder: the folder to write.
        form: a key of FORMATS.
        int8: whether products are those of integers.
        run: a TREC run, on which the agreement of the scores is measured.

    Raises UserError if the model has no trained head or cannot be exported, if a package or the run is missing, and if
    the run's queries or documents have no text.
    """
    FORMATS[form].check_packages(int8)
    encoder = config.encoder
    trained = open_trained_weights(checkpoint, encoder.pooling, encoder.max_doc_tokens, encoder.template)
    model = Reranker(TextScorer(TrainedCrossEncoder(*trained), torch.device("cpu"), "float32"), checkpoint)
    sample = None
    if run is not None:
        _, collection = open_queried(config.collection, checkpoint, model.model.settings)
        sample = sample_of_run(run, collection)
    with atomic_write(folder) as tmp:
        graph, agreement = write_graph(tmp, model, form, int8), None
        if sample is not None:
            scoring = progress(sample.queries, len(sample.queries), "scoring")
            scored = {query_id: (sample.score(model, query_id), sample.score(graph, query_id)) for query_id in scoring}
            agreement = agreement_of(*({query_id: pair[i] for query_id, pair in scored.items()} for i in (0, 1)))
            log.info(f"agreement with {checkpoint}: {agreement}")
        write_export_card(tmp, checkpoint, agreement, run)
    return folder


def write_graph(folder: Path, model: Reranker, form: str, int8: bool) -> Reranker:
    """Writes the folder of a graph and opens it. Raises UserError for a model that cannot be exported."""
    scorer, weights = model.scorer, model.model
    assert isinstance(weights, CrossEncoder)  # no graph
    write_export(folder, model.name, weights, scorer.tokenizer, scorer.max_doc_tokens, form, int8)
    return Reranker.load(folder, device="cpu")
