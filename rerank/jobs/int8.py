"""An int8 graph in the place of a cross-encoder that is served on a CPU, if it is faster there and ranks alike."""

import json
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

import torch

from rerank.data.types import Qrels, Run
from rerank.evaluation.agreement import agreement_of
from rerank.evaluation.evaluate import evaluate
from rerank.jobs.export import write_graph
from rerank.jobs.sample import Sample
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.export.folder import FORMATS
from rerank.models.gpu import SMALL
from rerank.models.hub import file_hashes
from rerank.models.reranker import Reranker
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.json_files import read_json
from rerank.utils.locks import make_once
from rerank.utils.progress import log, progress
from rerank.utils.user_cache import user_cache

FORMAT = "openvino"
GRAPH, MEASURED = "graph", "measured.json"
MEASURE = "nDCG@10"
LEAST_TAU = 0.97
"""Kendall's τ of the rankings in the model's precision and in int8."""
MOST_LOST = 0.005
"""The part of the measure that int8 may lose, more than by chance: by a standard error."""
LEAST_GAIN = 1.1
"""How many times as fast int8 must be."""
TRIES = 2
"""Times that a list is scored; the first one may wait for kernels that a process compiles for new lengths."""


class Measured(TypedDict):
    """How int8 compares; `refused` is why it is not taken, or empty."""

    refused: str
    gain: float
    tau: float


def int8_if_faster(reranker: Reranker, sample: Callable[[], Sample]) -> Reranker:
    """A reranker of an int8 graph, or the given one if that is faster, or better; logs which, and why.

    The graph is made once and kept in the user's cache, under the hash of the model's files. `sample` gives the texts
    on which int8 is compared with the precision that the model has, float32 or bf16.
    """
    scorer, model, name = reranker.scorer, reranker.model, reranker.name
    if not isinstance(model, CrossEncoder) or scorer.device.type != "cpu":
        return reranker
    if sum(weight.numel() for weight in model.parameters()) < SMALL:
        return reranker
    try:
        FORMATS[FORMAT].check_packages(True)
    except UserError:  # it names flags of `rerank export`
        log.info(f'{name}: served in {scorer.precision}; int8 may be faster: pip install "ir-rerank[cpu]"')
        return reranker
    settings = model.pooling, model.template, scorer.max_doc_tokens
    machine = torch.backends.cpu.get_cpu_capability(), torch.get_num_threads(), scorer.precision
    place = user_cache("int8") / short_hash(*file_hashes(name), *settings, FORMAT, *machine)
    make_once(place, "int8 graph", lambda: _make(place, reranker, sample()))
    measured: Measured = read_json(place / MEASURED, Measured, f"remove {place}")
    if measured["refused"]:
        log.info(f"{name}: served in {scorer.precision}: {measured['refused']}")
        return reranker
    log.info(
        f"{name}: served in int8, {measured['gain']:.1f} times as fast as {scorer.precision}, with Kendall's tau "
        f"{measured['tau']:.3f}; --speed exact serves float32"
    )
    found = Reranker.load(place / GRAPH, device="cpu")
    found.scorer.max_doc_tokens = scorer.max_doc_tokens
    return found


def _make(place: Path, reranker: Reranker, sample: Sample) -> None:
    """Writes the folder `place`: the graph, if it is taken, and how it compares."""
    log.info(f"{reranker.name}: making an int8 graph, once, and comparing it on texts of {sample.name}")
    with atomic_write(place) as tmp:
        tmp.mkdir()
        try:
            measured = _compare(reranker, write_graph(tmp / GRAPH, reranker, FORMAT, int8=True), sample)
        except UserError as error:
            measured = Measured(refused=str(error), gain=0.0, tau=0.0)
        if measured["refused"]:
            shutil.rmtree(tmp / GRAPH, ignore_errors=True)
        (tmp / MEASURED).write_text(json.dumps(measured), encoding="utf-8")


def _compare(exact: Reranker, rounded: Reranker, sample: Sample) -> Measured:
    """How int8 compares with the model as it is, on the sample, which both score in turn."""
    runs: tuple[Run, Run] = ({}, {})
    ratios: list[float] = []
    for query_id in progress(sample.documents, len(sample.documents), f"comparing int8 with {exact.scorer.precision}"):
        seconds = []
        for run, model in zip(runs, (exact, rounded), strict=True):
            times = [_timed(model, sample, query_id) for _ in range(TRIES)]
            run[query_id], _ = times[0]
            seconds.append(min(spent for _, spent in times))
        ratios.append(seconds[0] / seconds[1])
    gain, tau = statistics.median(ratios), agreement_of(*runs).tau
    qrels = {query_id: sample.qrels[query_id] for query_id in sample.documents if query_id in sample.qrels}
    return Measured(refused=_why_not(gain, tau, qrels, runs), gain=gain, tau=tau)


def _timed(model: Reranker, sample: Sample, query_id: str) -> tuple[dict[str, float], float]:
    """The scores of a query's documents, and the seconds that they took."""
    start = time.perf_counter()
    return sample.score(model, query_id), time.perf_counter() - start


def _why_not(gain: float, tau: float, qrels: Qrels, runs: tuple[Run, Run]) -> str:
    """Why int8 is not taken; "" if it is."""
    if gain < LEAST_GAIN:
        return f"int8 is {gain:.2f} times as fast here"
    if tau < LEAST_TAU:
        return f"int8 ranks otherwise, with Kendall's tau {tau:.3f}, expected {LEAST_TAU} or more"
    if qrels:
        before, after = (evaluate(qrels, run, [MEASURE])[MEASURE] for run in runs)
        lost, mean = [before[query_id] - after[query_id] for query_id in before], statistics.mean(before.values())
        error = statistics.stdev(lost) / len(lost) ** 0.5 if len(lost) > 1 else 0.0
        if statistics.mean(lost) - error > MOST_LOST * mean:
            return f"int8 loses {statistics.mean(lost):.4f} ± {error:.4f} of {MEASURE} {mean:.4f}, {len(qrels)} queries"
    return ""
