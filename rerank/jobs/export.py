"""Writes a trained model as a graph for a CPU, and measures how far its scores agree (`rerank export`)."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

import torch

from rerank.batches.passages import PassageBuilder
from rerank.batches.text_template import open_template
from rerank.config import Config
from rerank.data.candidates import select_candidates
from rerank.data.collections import Collection
from rerank.data.tokens import make_store
from rerank.data.trec import read_run
from rerank.data.types import Candidates, Run
from rerank.evaluation.agreement import agreement_of
from rerank.jobs.int8 import DOCUMENTS, QUERIES, evenly_spaced
from rerank.jobs.model_card import write_export_card
from rerank.jobs.scoring import open_queried
from rerank.models.checkpoints import open_trained_weights, saved_settings
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.export.folder import FORMATS, ExportedCrossEncoder, open_export, write_export
from rerank.models.memory import open_budget
from rerank.models.pair_chunks import chunk_by_length, pairs_of
from rerank.models.scoring import make_run, score_chunks
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write
from rerank.utils.progress import log


@dataclass(frozen=True)
class Sample:
    """The candidates that calibrate and those that measure, and their passages.

    Every second query calibrates. The queries of the two are distinct if the run has several.
    """

    calibrating: list[Candidates]
    measuring: list[Candidates]
    builder: PassageBuilder


def export_checkpoint(config: Config, checkpoint: str, folder: Path, form: str, int8: bool, run: Path | None) -> Path:
    """Writes the new folder of a graph, with a model card, and returns it.

    Args:
        config: the pooling, the length of documents and the template of a model that was saved without them; the
            collection of the run, by default the one that the checkpoint was trained on, and its queries.
        checkpoint: the folder of a trained model, or the name of a cross-encoder on the hub.
        folder: the folder to write.
        form: a key of FORMATS.
        int8: whether products are those of integers.
        run: a TREC run, which int8 needs; with it the agreement of the scores is measured.

    Raises UserError if the model has no trained head or cannot be exported, if a package or the run is missing, and if
    the run's queries or documents have no text.
    """
    if int8 and run is None:
        raise UserError("--int8: needs --calibrate, a TREC run such as BM25's; without --int8 the graph is float32")
    FORMATS[form].check_packages(int8)
    model, tokenizer, max_length, max_doc_tokens = open_trained_weights(
        checkpoint, config.encoder.pooling, config.encoder.max_doc_tokens, config.encoder.template
    )
    model.eval()
    sample = None
    if run is not None:
        _, collection = open_queried(config.collection, checkpoint, saved_settings(model))
        sample = _sample(run, collection, model, tokenizer, max_length, max_doc_tokens)
    calibration = None
    if int8 and sample is not None:
        calibration = [sample.builder(pairs_of([candidates])) for candidates in sample.calibrating]
    settings = saved_settings(model) | {"pooling": model.pooling, "max_doc_tokens": max_doc_tokens}
    with atomic_write(folder) as tmp:
        write_export(tmp, checkpoint, model, tokenizer, (max_length, max_doc_tokens), form, calibration, settings)
        agreement = None
        if sample is not None:
            exported, _, _ = open_export(str(tmp), "")
            expected = _scores(model, sample, "scoring with the checkpoint")
            agreement = agreement_of(expected, _scores(exported, sample, "scoring"))
            log.info(f"agreement with {checkpoint}: {agreement}")
        write_export_card(tmp, checkpoint, agreement, run)
    return folder


def _sample(
    run: Path, collection: Collection, model: CrossEncoder, tokenizer: object, max_length: int, max_doc_tokens: int
) -> Sample:
    found = read_run(run)
    known = sorted(query_id for query_id in found if query_id in collection.queries)
    if not known:
        raise UserError(
            f"{run}: {collection.source} has none of its {len(found)} queries; expected a run for this collection"
        )
    chosen = evenly_spaced(known, QUERIES)
    candidates = list(select_candidates(found, {}, DOCUMENTS, chosen).values())
    doc_ids = sorted({doc_id for c in candidates for doc_id in c.doc_ids})
    template = open_template(tokenizer, model.template)
    texts = (document.text for document in collection.get(doc_ids))
    store = make_store(doc_ids, texts, tokenizer, max_doc_tokens, template.document_lead)
    queries = {query_id: collection.queries[query_id] for query_id in chosen}
    builder = PassageBuilder.build(queries, store, tokenizer, template, max_length, model.splitting)
    return Sample(candidates[::2], candidates[1::2] or candidates, builder)


def _scores(model: CrossEncoder | ExportedCrossEncoder, sample: Sample, what: str) -> Run:
    cpu = torch.device("cpu")
    budget = open_budget("auto", cpu)
    chunks = chunk_by_length(pairs_of(sample.measuring), sample.builder, budget.tokens)
    scored = score_chunks(model, sample.builder, chunks, cpu, contextlib.nullcontext, budget, what)
    return make_run(sample.measuring, scored)
