"""`rerank export`: writes a cross-encoder as a graph for CPUs, and measures the loss of int8 on a collection."""

import json
import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from rerank.config import Config
from rerank.data.taught import copy_taught
from rerank.data.trec import ranked
from rerank.data.types import Judgments, Run
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.significance import mean_and_error
from rerank.experiments.checks import cut_of
from rerank.experiments.collection import as_trained, collection_of, folder_of
from rerank.experiments.first_stage import find_index, with_texts
from rerank.models.checkpoints import open_trained_cross_encoder
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.export.folder import write_export
from rerank.models.export.formats import check_packages
from rerank.models.hub import encoder_folder
from rerank.models.reranker import Reranker
from rerank.models.scoring import TextScorer
from rerank.retrieval.bm25 import Searcher
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write
from rerank.utils.progress import log, progress

QUERIES = 100
"""Most queries that int8 is measured on: a sample of the judged ones, or of all if none is judged."""

MEASURE = "nDCG@10"
"""The measure that compares int8 with float32."""

REPORT = "int8.json"
"""The file with the report in an export's folder."""


@dataclass(frozen=True)
class Sample:
    """The queries that int8 is measured on, by id; the texts of their candidates by doc_id; first-stage scores."""

    collection: str
    queries: Mapping[str, str]
    documents: Mapping[str, Mapping[str, str]]
    first_scores: Run
    qrels: Judgments


@dataclass(frozen=True)
class Int8Report:
    """The loss of int8; `difference` is the mean of int8 − float32 over the judged queries, None if none is judged."""

    collection: str
    queries: int
    documents: int
    measure: str
    float32: float | None
    int8: float | None
    difference: float | None
    standard_error: float | None
    kendall_tau: float
    times_as_fast: float

    def line(self) -> str:
        """The report in one line."""
        lost = f"no judged query has a candidate, so {self.measure} is not measured"
        if self.difference is not None:
            error = "" if self.standard_error is None else f" ± {self.standard_error:.4f}"
            values = f"{self.float32:.4f} in float32, {self.int8:.4f} in int8"
            lost = f"{self.measure} {values}, difference {self.difference:+.4f}{error}"
        return (
            f"int8 on {self.queries} queries of {self.collection} with {self.documents} documents: {lost}; Kendall's "
            f"tau {self.kendall_tau:.3f}; {self.times_as_fast:.1f} times as fast"
        )


def export_checkpoint(config: Config, checkpoint: str, folder: Path, form: str, int8: bool = False) -> Path:
    """Writes the graph of a checkpoint, or of a cross-encoder on the hub, to a new folder; returns the folder.

    The settings give the pooling, the length of documents and the template, unless the checkpoint records them; for
    int8 also the collection and the first stage of the measurement. `form` is the format of the graph. Raises UserError
    if the model has no trained head or cannot be exported, if a package is missing, and if the collection cannot be
    opened.
    """
    check_packages(form, int8)
    encoder_folder(checkpoint)  # refuses an exported graph
    settings = config.encoder
    cut = cut_of(settings)
    trained = open_trained_cross_encoder(checkpoint, settings.pooling, settings.max_doc_tokens, settings.template, cut)
    assert isinstance(trained, CrossEncoder)  # no graph
    model = Reranker(TextScorer(trained, torch.device("cpu"), "float32"), checkpoint)
    sample = _sample(config, model) if int8 else None  # before the export, which takes minutes
    with atomic_write(folder) as tmp:
        write_export(tmp, checkpoint, trained, form, int8)
        copy_taught(encoder_folder(checkpoint), tmp)
        if sample:
            report = measure_int8(sample, model, Reranker.load(tmp, device="cpu"))
            (tmp / REPORT).write_text(json.dumps(asdict(report), indent=1), encoding="utf-8")
            log.info(report.line())
    return folder


def _sample(config: Config, model: Reranker) -> Sample | None:
    """Samples queries of the collection that the settings name, or else of the checkpoint's collection.

    Returns None, and logs the reason, if the checkpoint's collection is unknown or cannot be opened, or if no query
    has a candidate.
    """
    named = config.collection.source
    try:
        settings = as_trained(config.collection, model.name, model.model.settings)
        collection = collection_of(settings)
        queries = collection.queries
    except UserError as error:
        if named:
            raise
        log.info(f"the loss of int8 is not measured: {error}")
        return None
    config, first = replace(config, collection=settings), config.first_stage
    names = [query_id for query_id in queries if collection.qrels.get(query_id)] or list(queries)
    asked = {query_id: queries[query_id] for query_id in names[:: math.ceil(len(names) / QUERIES)]}
    folder = folder_of(config, collection)
    searcher = Searcher(find_index(config, collection, folder), first.k1, first.b, settings.language)
    run = searcher.search(asked, first.depth, first.threads or None)
    texts = with_texts(config, collection, folder)
    documents = {
        query_id: {document.doc_id: document.text for document in texts.get(ranked(scores))}
        for query_id, scores in run.items()
    }
    if not documents:
        log.info(
            f"the loss of int8 is not measured: BM25 finds no document for {len(asked)} queries of {settings.source}"
        )
        return None
    return Sample(collection.name, asked, documents, run, collection.qrels)


def measure_int8(sample: Sample, exact: Reranker, rounded: Reranker) -> Int8Report:
    """Ranks the candidates of the sample by both models, and compares rankings and times."""
    from scipy.stats import kendalltau  # takes half a second

    ratios, taus = [], []
    runs: tuple[Run, Run] = ({}, {})
    for query_id, documents in progress(sample.documents.items(), len(sample.documents), "measuring int8"):
        texts, first = list(documents.values()), [sample.first_scores[query_id][doc_id] for doc_id in documents]
        scores, seconds = [], []
        for model, run in zip((exact, rounded), runs, strict=True):
            start = time.perf_counter()
            scores.append(model.score(sample.queries[query_id], texts, first))
            seconds.append(time.perf_counter() - start)
            run[query_id] = dict(zip(documents, scores[-1].tolist(), strict=True))
        ratios.append(seconds[0] / seconds[1])
        tau = kendalltau(*scores).statistic
        taus += [float(tau)] if np.isfinite(tau) else []  # NaN for one document and for equal scores
    float32, int8, difference, error = _values(sample, *runs)
    return Int8Report(
        collection=sample.collection,
        queries=len(sample.documents),
        documents=max(map(len, sample.documents.values())),
        measure=MEASURE,
        float32=float32,
        int8=int8,
        difference=difference,
        standard_error=error,
        kendall_tau=statistics.fmean(taus) if taus else 1.0,
        times_as_fast=statistics.median(ratios),
    )


def _values(sample: Sample, exact: Run, rounded: Run) -> tuple[float | None, float | None, float | None, float | None]:
    """MEASURE of both runs, the difference and its standard error over judged queries; None where unknown."""
    qrels = {query_id: sample.qrels[query_id] for query_id in exact if sample.qrels.get(query_id)}
    if not qrels:
        return None, None, None, None
    before, after = (evaluate(qrels, run, [MEASURE])[MEASURE] for run in (exact, rounded))
    difference, error = mean_and_error([after[query_id] - before[query_id] for query_id in before])
    means = statistics.fmean(before.values()), statistics.fmean(after.values())
    return *means, difference, error if len(before) > 1 else None
