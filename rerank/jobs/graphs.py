"""Graphs of cross-encoders for CPUs: those of `rerank export`, and of a server where int8 is faster and ranks alike."""

import json
import shutil
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from timeit import timeit
from typing import Any, NamedTuple

import numpy as np
import torch

from rerank.config import EncoderSettings
from rerank.data.types import Judgments, Run
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.significance import mean_and_error
from rerank.models.checkpoints import open_trained_cross_encoder
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.export.folder import write_export
from rerank.models.export.formats import check_packages
from rerank.models.gpu import SMALL
from rerank.models.hub import encoder_folder, file_hashes
from rerank.models.reranker import Reranker
from rerank.models.scoring import TextScorer
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, short_hash, user_cache
from rerank.utils.json_files import read_json
from rerank.utils.locks import make_once
from rerank.utils.progress import log, progress

FORMAT = "openvino"
GRAPH, MEASURED = "graph", "measured.json"
LEAST_TAU = 0.97  # Kendall's τ of the rankings, the mean over queries
MEASURE, MOST_LOST = "nDCG@10", 0.005  # the part of it that int8 may lose, more than by chance: by a standard error
LEAST_GAIN = 1.1  # how many times as fast int8 must be
QUERIES, DOCUMENTS = 16, 20  # queries of a sample, and documents of each
LONG, CHARACTERS = 800, 1500  # of a topic of Python's help that is taken, at least, and those that are kept of it


class Sample(NamedTuple):
    """Queries with their candidates: query_id -> text, query_id -> doc_id -> text; and the judgments, {} without."""

    name: str
    queries: Mapping[str, str]
    documents: Mapping[str, Mapping[str, str]]
    qrels: Judgments


def export_checkpoint(settings: EncoderSettings, checkpoint: str, folder: Path, form: str, int8: bool) -> Path:
    """Writes the graph of a checkpoint, or of a cross-encoder on the hub, to a new folder, which it returns.

    `settings` has the pooling, the length of documents and the template of a model that was saved without them; `form`
    is its format. Raises UserError if the model has no trained head or cannot be exported, and if a package is
    missing.
    """
    check_packages(form, int8)
    encoder_folder(checkpoint)  # refuses an exported graph
    trained = open_trained_cross_encoder(checkpoint, settings.pooling, settings.max_doc_tokens, settings.template)
    model = Reranker(TextScorer(trained, torch.device("cpu"), "float32"), checkpoint)
    with atomic_write(folder) as tmp:
        _write_graph(tmp, model, form, int8)
    return folder


def _write_graph(folder: Path, model: Reranker, form: str, int8: bool) -> Reranker:
    """Writes the folder of a graph and opens it. Raises UserError for a model that cannot be exported."""
    assert isinstance(model.model, CrossEncoder)  # no graph
    write_export(folder, model.name, model.model, form, int8)
    return Reranker.load(folder, device="cpu")


def int8_if_faster(reranker: Reranker, sample: Callable[[], Sample]) -> Reranker:
    """A reranker of an int8 graph, or the given one if that is faster, or better; logs which, and why.

    The graph is made once, in the user's cache. `sample` gives the texts on which int8 is compared with the precision
    that the model has, float32 or bf16.
    """
    scorer, model, name = reranker.scorer, reranker.model, reranker.name
    if not isinstance(model, CrossEncoder) or scorer.device.type != "cpu":
        return reranker
    if sum(weight.numel() for weight in model.parameters()) < SMALL:
        return reranker
    try:
        check_packages(FORMAT, True)
    except UserError:  # it names flags of `rerank export`
        log.info(f'{name}: served in {scorer.precision}; int8 may be faster: pip install "ir-rerank[cpu]"')
        return reranker
    settings = model.pooling, model.template, model.max_doc_tokens
    machine = torch.backends.cpu.get_cpu_capability(), torch.get_num_threads(), scorer.precision
    place = user_cache("int8") / short_hash(*file_hashes(name), *settings, FORMAT, *machine)
    make_once(place, "int8 graph", lambda: _make(place, reranker, sample()))
    measured = read_json(place / MEASURED, dict[str, Any], f"remove {place}")
    if measured["refused"]:
        log.info(f"{name}: served in {scorer.precision}: {measured['refused']}")
        return reranker
    log.info(
        f"{name}: served in int8, {measured['gain']:.1f} times as fast as {scorer.precision}, with Kendall's tau "
        f"{measured['tau']:.3f}; --speed exact serves float32"
    )
    found = Reranker.load(place / GRAPH, device="cpu")
    found.model.max_doc_tokens = model.max_doc_tokens
    return found


def _make(place: Path, reranker: Reranker, sample: Sample) -> None:
    """Writes the folder `place`: the graph, if it is taken, and how it compares."""
    log.info(f"{reranker.name}: making an int8 graph, once, and comparing it on texts of {sample.name}")
    with atomic_write(place) as tmp:
        tmp.mkdir()
        try:
            measured = _compare(reranker, _write_graph(tmp / GRAPH, reranker, FORMAT, int8=True), sample)
        except UserError as error:
            measured = {"refused": str(error)}
        if measured["refused"]:
            shutil.rmtree(tmp / GRAPH, ignore_errors=True)
        (tmp / MEASURED).write_text(json.dumps(measured), encoding="utf-8")


def _compare(exact: Reranker, rounded: Reranker, sample: Sample) -> dict[str, Any]:
    """How int8 compares with the model as it is, on the sample; `refused` is why it is not taken, or empty."""
    from scipy.stats import kendalltau  # takes half a second

    ratios, taus = [], []
    runs: tuple[Run, Run] = ({}, {})
    for query_id in progress(sample.documents, len(sample.documents), f"comparing int8 with {exact.scorer.precision}"):
        query, texts = sample.queries[query_id], list(sample.documents[query_id].values())
        scores = [model.score(query, texts) for model in (exact, rounded)]  # may wait for kernels of new lengths
        seconds = [timeit(partial(model.score, query, texts), number=1) for model in (exact, rounded)]
        ratios.append(seconds[0] / seconds[1])
        for run, of_model in zip(runs, scores, strict=True):
            run[query_id] = dict(zip(sample.documents[query_id], of_model.tolist(), strict=True))
        tau = kendalltau(*scores).statistic
        taus += [float(tau)] if np.isfinite(tau) else []  # it is not a number for one document, and for equal scores
    gain, tau = statistics.median(ratios), statistics.fmean(taus) if taus else 1.0
    refused = ""
    if gain < LEAST_GAIN:
        refused = f"int8 is {gain:.2f} times as fast here"
    elif tau < LEAST_TAU:
        refused = f"int8 ranks otherwise, with Kendall's tau {tau:.3f}, expected {LEAST_TAU} or more"
    elif qrels := {query_id: sample.qrels[query_id] for query_id in sample.documents if query_id in sample.qrels}:
        before, after = (evaluate(qrels, run, [MEASURE])[MEASURE] for run in runs)
        lost, error = mean_and_error([before[query_id] - after[query_id] for query_id in before])
        mean = statistics.fmean(before.values())
        error = error if len(before) > 1 else 0.0
        if lost - error > MOST_LOST * mean:
            refused = f"int8 loses {lost:.4f} ± {error:.4f} of {MEASURE} {mean:.4f}, {len(qrels)} queries"
    return {"refused": refused, "gain": gain, "tau": tau}


def texts_of_python() -> Sample:
    """Headings of topics of Python's `help()`, which every machine has, and beginnings of this topic and the next."""
    from pydoc_data.topics import topics

    parts = [text.partition("\n***") for _, text in sorted(topics.items())]
    found = [(heading.strip(), body.lstrip("* \n")[:CHARACTERS]) for heading, _, body in parts if len(body) > LONG]
    chosen = range(0, len(found), len(found) // QUERIES)[:QUERIES]
    queries = {str(place): found[place][0] for place in chosen}
    documents = {
        str(place): {str(shift): found[(place + shift) % len(found)][1] for shift in range(DOCUMENTS)}
        for place in chosen
    }
    return Sample("Python's help", queries, documents, {})
