"""Benchmark: documents scored per second, by rerank and by sentence_transformers.CrossEncoder.predict."""

from collections.abc import Sequence
from statistics import median
from typing import Annotated, Any

import torch
from accelerate import Accelerator
from cyclopts import Parameter
from cyclopts.validators import Number
from sentence_transformers import CrossEncoder
from torch import nn

from rerank.config import TrainingSettings
from rerank.data.types import Run
from rerank.models.gpu import AUTOCAST
from rerank.models.memory import open_budget
from rerank.models.scoring import score_candidates
from rerank.training.device import open_accelerator, precision_of
from scripts.benchmarks.flops import forward_flops
from scripts.benchmarks.report import CpuSeconds, Encoder, Out, Rounds, publish
from scripts.benchmarks.timing import Work, interleaved, layer_products, ratio, square_product
from scripts.benchmarks.workload import Workload, make_workload, on_device, open_encoder

DEFAULT_BATCH = 32
BATCHES = {"cpu": (1, 2, 4, 8, 16, DEFAULT_BATCH), "cuda": (DEFAULT_BATCH, 128), "mps": (DEFAULT_BATCH, 128)}
QUERIES = 4
WARM_UP = 8
OURS = "rerank"
OURS_LONG = "rerank, documents up to 800 tokens"
EXACT = "rerank in float32"
OURS_FASTER = "rerank is × faster"
COLUMNS = {
    "what": "",
    "documents/s": ",.2f",
    "tokens/s": ",.0f",
    "useful GFLOP/s": ",.1f",
    "of the product": ".3f",
    OURS_FASTER: ".3f",
}
NOTES = (
    "useful GFLOP/s: operations on real tokens, not on padding. of the product: relative to the large square product "
    "of the precision in the same round. × faster: likewise. All values are medians over rounds.",
    "CrossEncoder.predict sorts by length and tokenises in every call; rerank reads its store of tokenised documents.",
)


Documents = Annotated[int, Parameter(validator=Number(gte=QUERIES))]


def scoring(
    *,
    encoder: Encoder = "",
    rounds: Rounds = 3,
    documents: Documents | None = None,
    cpu_seconds: CpuSeconds = False,
    out: Out = None,
) -> None:
    """Documents scored per second: rerank and sentence_transformers.CrossEncoder.

    Parameters
    ----------
    documents
        Documents to score per round; by default 64 on a CPU and 8,192 on a GPU.
    """
    accelerator = open_accelerator(TrainingSettings())
    device = accelerator.device
    gpu = device.type == "cuda"
    name = encoder or ("bert-base" if gpu else "minilm")
    documents = documents or (8192 if gpu else 64)
    with open_encoder(name, own_head=True) as folder:
        short, long = (make_workload(folder, QUERIES, documents // QUERIES, one_passage=one) for one in (True, False))
        rows, note = measured(short, long, accelerator, rounds, cpu_seconds)
    settings = {"encoder": name, "rounds": rounds, "documents": documents, "precision": precision_of(accelerator)}
    publish(f"Scoring with {name}", rows, COLUMNS, settings, device, [note, *NOTES], out)


def measured(
    short: Workload, long: Workload, accelerator: Accelerator, rounds: int, cpu_seconds: bool = False
) -> tuple[list[dict[str, Any]], str]:
    """The rows of two workloads of the same encoder, and what to note; the batch sizes of `predict` are tried first."""
    device, dtype = accelerator.device, product_type(accelerator)
    model = on_device(short.model, accelerator)  # the long workload has the same model
    products = [square_product(device, dtype), layer_products(model.encoder, device, dtype)]
    if compared := dtype == torch.bfloat16 and device.type == "cpu":
        products.append(square_product(device, torch.float32))
    works: dict[str, Work] = {product: work for product, work, _ in products}
    works |= {
        OURS: lambda: our_scores(model, short, accelerator),
        OURS_LONG: lambda: our_scores(model, long, accelerator),
    }
    slower = [EXACT] if compared else []
    if compared:
        works[EXACT] = in_float32(model, works[OURS])
    baseline = CrossEncoder(str(short.folder), num_labels=1, device=str(device))
    trials: dict[str, Work] = {
        f"predict, batch {size}": _predict(baseline, short, size, accelerator) for size in BATCHES[device.type]
    }
    _predict(baseline, short, DEFAULT_BATCH, accelerator, WARM_UP)()
    tried = interleaved(trials, 1, device, cpu_seconds=cpu_seconds)
    best = min(tried, key=lambda batch: tried[batch][0])
    total = sum(len(c.doc_ids) for c in short.candidates)
    note = "documents/s of CrossEncoder.predict by batch size: " + ", ".join(
        f"{batch.split()[-1]}: {total / seconds[0]:.2f}" for batch, seconds in tried.items()
    )
    baselines = {batch: trials[batch] for batch in dict.fromkeys((best, f"predict, batch {DEFAULT_BATCH}"))}
    works[next(iter(works))]()
    our_scores(model, short, accelerator)
    seconds = interleaved(works | baselines, rounds, device, cpu_seconds=cpu_seconds)
    rows, rates = product_rows(products, seconds)
    for what in [OURS, *slower, *baselines, OURS_LONG]:
        row = rate_row(what, long if what == OURS_LONG else short, seconds[what], rates)
        rows.append(row | ({OURS_FASTER: ratio(seconds[what], seconds[OURS])} if what in (*slower, *baselines) else {}))
    return rows, note


def our_scores(model: nn.Module, workload: Workload, accelerator: Accelerator) -> Run:
    """The scores of all candidates, as `rerank score` and validation compute them."""
    return score_candidates(
        model, workload.builder, workload.candidates, accelerator, open_budget("auto", accelerator.device)
    )


def in_float32(model: Any, work: Work) -> Work:
    """The same work with a model that computes in float32, whatever the precision of the run."""

    def exact() -> Any:
        model.in_float32 = True
        try:
            return work()
        finally:
            model.in_float32 = False

    return exact


def _predict(baseline: Any, workload: Workload, batch: int, accelerator: Accelerator, first: int | None = None) -> Work:
    pairs = text_pairs(workload)[:first]
    return lambda: predictions(baseline, pairs, batch, accelerator)


def text_pairs(workload: Workload) -> list[tuple[str, str]]:
    """(query, document) texts of all candidates, in their order."""
    return [(workload.queries[c.query_id], workload.texts[doc_id]) for c in workload.candidates for doc_id in c.doc_ids]


def predictions(baseline: Any, pairs: Sequence[tuple[str, str]], batch: int, accelerator: Accelerator) -> Any:
    """(pairs,) logits by CrossEncoder.predict."""
    with accelerator.autocast():
        return baseline.predict(pairs, batch_size=batch, show_progress_bar=False, activation_fn=nn.Identity())


def product_type(accelerator: Accelerator) -> torch.dtype:
    """The data type of the encoder's matrix products."""
    return AUTOCAST.get(precision_of(accelerator), torch.float32)


def product_rows(
    products: Sequence[tuple[str, Work, float]], seconds: dict[str, list[float]]
) -> tuple[list[dict[str, Any]], dict[str, list[float]]]:
    """A row for each product, and the operations per second of each in each round."""
    rates = {name: [flops / took for took in seconds[name]] for name, _, flops in products}
    first = rates[products[0][0]]
    rows = [
        {
            "what": name,
            "useful GFLOP/s": median(rate) / 1e9,
            "of the product": ratio(rate, first),
            "seconds": seconds[name],
        }
        for name, rate in rates.items()
    ]
    return rows, rates


def rate_row(
    what: str, workload: Workload, seconds: list[float], products: dict[str, list[float]], forwards: int = 1
) -> dict[str, Any]:
    """The row of a contestant on all candidates of a workload: rates of the median round, and all seconds.

    `forwards` is the cost of the work in forward passes. `products` are the rates of `product_rows`: EXACT is compared
    with the last one, the other contestants with the first.
    """
    lengths, middle = workload.passage_lengths(), median(seconds)
    packed = what.startswith(OURS) and not workload.model.is_padded
    flops = forwards * forward_flops(workload.model.encoder, lengths, packed)
    return {
        "what": what,
        "documents/s": sum(len(c.doc_ids) for c in workload.candidates) / middle,
        "tokens/s": int(lengths.sum()) / middle,
        "useful GFLOP/s": flops / middle / 1e9,
        "of the product": ratio(
            [flops / took for took in seconds], list(products.values())[-1 if what == EXACT else 0]
        ),
        "seconds": seconds,
    }
