"""Benchmark: time and memory of the forward and backward pass of each loss."""

from statistics import median
from typing import Annotated, Any

import torch
from cyclopts import Parameter
from torch import Tensor

from rerank.losses import LOSSES
from rerank.utils.progress import log
from scripts.benchmarks.baselines import smoothi_graph
from scripts.benchmarks.memory import in_fresh_process, peak_memory
from scripts.benchmarks.report import Count, CpuSeconds, Out, Rounds, publish
from scripts.benchmarks.timing import Work, interleaved, ratio

BASELINE = "smoothi with an autograd graph"
LABELS = (0.52, 0.32, 0.13, 0.02, 0.01)
"""Shares of the labels 0 to 4: about those of MSLR-WEB30K."""
LEAST_SECONDS = 0.2
COLUMNS = {"loss": "", "lists × documents": "", "ms": ",.2f", "peak MB": ",.1f", f"{BASELINE} / it": ".2f"}
NOTES = (
    "ms: forward and backward, median of the rounds. peak MB: memory in addition to scores, labels and gradient, in a "
    "separate process for each loss.",
    "All losses have default settings; metric losses optimise NDCG over the whole list.",
)


def losses(
    *,
    lists: Count = 128,
    documents: Annotated[tuple[Count, ...], Parameter(consume_multiple=True, negative=())] = (147, 1251),
    rounds: Rounds = 3,
    cpu_seconds: CpuSeconds = False,
    out: Out = None,
) -> None:
    """Milliseconds and memory of every loss, forward and backward, and of SmoothI with an autograd graph.

    Parameters
    ----------
    lists
        Lists of a batch.
    documents
        Documents of a list; one table for each number.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = [row for count in documents for row in _of_shape(lists, count, rounds, device, cpu_seconds)]
    settings = {"lists": lists, "documents": documents, "rounds": rounds, "labels": LABELS, "dtype": "float32"}
    settings["cpu_seconds"] = cpu_seconds
    publish("Losses, forward and backward", rows, COLUMNS, settings, device, NOTES, out)


def _of_shape(lists: int, documents: int, rounds: int, device: torch.device, cpu_seconds: bool) -> list[dict[str, Any]]:
    peaks: dict[str, int | None] = {}
    for name in [BASELINE, *LOSSES]:
        peak = peaks[name] = in_fresh_process(peak_bytes, name, lists, documents, device.type)
        log.info(f"{lists} × {documents}, {name}: {'out of memory' if peak is None else f'{peak / 1e6:,.1f} MB'}")
    scores, labels = inputs(lists, documents, device)
    works = {name: _work(name, scores, labels) for name, peak in peaks.items() if peak is not None}
    seconds = interleaved(works, rounds, device, LEAST_SECONDS, cpu_seconds)
    rows = []
    for name, peak in peaks.items():
        row: dict[str, Any] = {"loss": name, "lists × documents": f"{lists} × {documents:,}"}
        if peak is None:
            rows.append({**row, "ms": "out of memory"})
            continue
        row |= {"ms": 1000 * median(seconds[name]), "peak MB": peak / 1e6, "seconds": seconds[name]}
        if BASELINE in seconds and name == "smoothi":
            row[f"{BASELINE} / it"] = ratio(seconds[BASELINE], seconds[name])
        rows.append(row)
    return rows


def peak_bytes(name: str, lists: int, documents: int, device: str) -> int:
    """Peak bytes of forward and backward pass, in addition to the scores, the labels and the gradient."""
    scores, labels = inputs(lists, documents, torch.device(device))
    _work(name, *inputs(2, 3, scores.device))()  # loads libraries and starts threads
    peak = peak_memory(_work(name, scores, labels), scores.device)
    gradient = scores.numel() * scores.element_size()
    return max(0, peak.most - peak.before - gradient)


def inputs(lists: int, documents: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Normal scores that require a gradient, and labels from 0 to 4: both (lists, documents) float32."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(lists, documents, generator=generator)
    labels = torch.multinomial(torch.tensor(LABELS), lists * documents, replacement=True, generator=generator)
    return scores.to(device).requires_grad_(), labels.view(lists, documents).float().to(device)


def _work(name: str, scores: Tensor, labels: Tensor) -> Work:
    loss = smoothi_graph if name == BASELINE else LOSSES[name]

    def work() -> None:
        scores.grad = None
        loss(scores, labels).sum().backward()

    return work
