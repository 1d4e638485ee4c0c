"""Writes a trained model as a graph for a CPU, and measures how far its scores agree (`rerank export`)."""

from collections.abc import Sequence
from pathlib import Path

import torch

from rerank.batches.batch import Packed
from rerank.config import Config
from rerank.evaluation.agreement import agreement_of
from rerank.jobs.model_card import write_export_card
from rerank.jobs.sample import Sample, sample_of_run
from rerank.jobs.scoring import open_queried
from rerank.models.checkpoints import TrainedCrossEncoder, open_trained_weights, saved_settings
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.export.folder import FORMATS, write_export
from rerank.models.reranker import Reranker
from rerank.models.text_scorer import TextScorer
from rerank.utils.errors import UserError
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
        run: a TREC run, with which the agreement of the scores is measured. Int8 in ONNX needs it: every second of its
            queries calibrates, and the others measure.

    Raises UserError if the model has no trained head or cannot be exported, if a package or the run is missing, and if
    the run's queries or documents have no text.
    """
    calibrates = int8 and form == "onnx"
    if calibrates and run is None:
        raise UserError("--int8: needs --calibrate with --format onnx: a TREC run such as BM25's")
    FORMATS[form].check_packages(int8)
    encoder = config.encoder
    trained = open_trained_weights(checkpoint, encoder.pooling, encoder.max_doc_tokens, encoder.template)
    model = Reranker(TextScorer(TrainedCrossEncoder(*trained), torch.device("cpu"), "float32"), checkpoint)
    calibration: list[Packed] | None = [] if int8 else None
    if run is not None:
        _, collection = open_queried(config.collection, checkpoint, saved_settings(model.model))
        sample = sample_of_run(run, collection)
        measuring = list(sample.queries)
        if calibrates:
            calibration = [_passages(model, sample, query_id) for query_id in measuring[::2]]
            measuring = measuring[1::2] or measuring
    with atomic_write(folder) as tmp:
        graph, agreement = write_graph(tmp, model, form, calibration), None
        if run is not None:
            scoring = progress(measuring, len(measuring), "scoring")
            scored = {query_id: (sample.score(model, query_id), sample.score(graph, query_id)) for query_id in scoring}
            agreement = agreement_of(*({query_id: pair[i] for query_id, pair in scored.items()} for i in (0, 1)))
            log.info(f"agreement with {checkpoint}: {agreement}")
        write_export_card(tmp, checkpoint, agreement, run)
    return folder


def _passages(model: Reranker, sample: Sample, query_id: str) -> Packed:
    """The passages of a query's documents."""
    pairs = [(sample.queries[query_id], text) for text in sample.documents[query_id].values()]
    tokenised = model.scorer.tokenise_pairs(pairs)
    return tokenised.builder(tokenised.pairs)


def write_graph(folder: Path, model: Reranker, form: str, calibration: Sequence[Packed] | None) -> Reranker:
    """Writes the folder of a graph, in int8 unless `calibration` is None, and opens it.

    Raises UserError for a model that cannot be exported.
    """
    scorer, weights = model.scorer, model.model
    assert isinstance(weights, CrossEncoder)  # no graph
    sizes = scorer.max_length, scorer.max_doc_tokens
    settings = saved_settings(weights) | {"pooling": weights.pooling, "max_doc_tokens": sizes[1]}
    write_export(folder, model.name, weights, scorer.tokenizer, sizes, form, calibration, settings)
    return Reranker.load(folder, device="cpu")
