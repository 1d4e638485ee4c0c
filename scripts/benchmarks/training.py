"""Benchmark: training documents per second, of rerank and of plain loops; hours for the whole paper."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from accelerate import Accelerator

from rerank.batches.batch import Batch, make_batch
from rerank.config import TrainingSettings
from rerank.data.types import Candidates
from rerank.losses import hinge, smoothi
from rerank.models.memory import open_budget
from rerank.training.device import open_accelerator, precision_of
from rerank.training.gradients import accumulate_gradient
from rerank.utils.parallel import prefetch
from rerank.utils.progress import log
from scripts.benchmarks.baselines import Cedr, cedr_step
from scripts.benchmarks.flops import FORWARDS_OF_A_STEP
from scripts.benchmarks.memory import Peak, in_fresh_process, peak_memory
from scripts.benchmarks.report import Count, CpuSeconds, Encoder, Out, Rounds, publish
from scripts.benchmarks.scoring import COLUMNS as RATES
from scripts.benchmarks.scoring import (
    EXACT,
    OURS_FASTER,
    in_float32,
    our_scores,
    product_rows,
    product_type,
    rate_row,
)
from scripts.benchmarks.timing import Work, interleaved, layer_products, ratio, square_product
from scripts.benchmarks.workload import Workload, make_workload, on_device, open_encoder

LIST = 4
LISTS_PER_STEP = 8
OURS = "rerank"
BASELINE = "CEDR-style loop"
SCORING = "rerank, scoring"
UNDROPPED = "CEDR-style loop without dropout of attention's weights"
TRAINER = "CrossEncoderTrainer"
TRAINER_BATCH = 8
"""Pairs of a forward pass of the trainer: its best batch size on a CPU."""

COLUMNS = {**RATES, "peak MB": ",.0f"}
NOTES = (
    "useful GFLOP/s: operations on real tokens, not on padding; training counts as three forward passes. of the "
    "product: relative to the large square product of the precision in the same round. × faster: likewise. All values "
    "are medians.",
    "peak MB: of a process that only takes one step, with weights, gradient and Adam's state; on a GPU, of its "
    "tensors.",
)


def training(
    *,
    encoder: Encoder = "",
    rounds: Rounds = 3,
    lists: Count | None = None,
    one_passage: bool = False,
    cpu_seconds: CpuSeconds = False,
    out: Out = None,
) -> None:
    """Documents per second in training: rerank and a plain CEDR-style loop.

    Parameters
    ----------
    lists
        Training lists of two relevant and two other documents per round, 8 per step; by default 8 on a CPU and 128 on
        a GPU. With fewer than 8, a step whose memory is measured has as many, and a list of 150 documents is left out.
    one_passage
        Documents of one passage, and sentence-transformers' CrossEncoderTrainer beside the loops; no memory.
    """
    accelerator = open_accelerator(TrainingSettings())
    device = accelerator.device
    gpu = device.type == "cuda"
    name = encoder or ("bert-base" if gpu else "minilm")
    lists = lists or (128 if gpu else 8)
    with open_encoder(name) as folder:
        workload = make_workload(folder, lists, LIST, one_passage)
        rows = measured(workload, accelerator, rounds, one_passage, cpu_seconds)
        for row in [] if one_passage else rows:
            if row["what"] in (OURS, BASELINE):
                peak = in_fresh_process(step_memory, row["what"], folder, min(lists, LISTS_PER_STEP))
                row["peak MB"] = "out of memory" if peak is None else peak.most / 1e6
                log.info(f"{row['what']}: peak {row['peak MB']} MB")
        gradients = {
            what: in_fresh_process(gradient_memory, documents, folder)
            for what, documents in GRADIENTS.items()
            if not one_passage and (not documents or lists >= LISTS_PER_STEP)
        }
    memory_note = "Gradients need, in addition to the weights: " + ", ".join(
        f"{what} {'out of memory' if peak is None else f'{(peak.most - peak.before) / 1e6:,.0f} MB'}"
        for what, peak in gradients.items()
    )
    rates = {row["what"]: row.get("documents/s", 0.0) for row in rows}
    hours = paper_hours(rates[OURS], rates[SCORING])
    notes = [f"The paper's whole table at these rates: {hours:,.1f} h ({PAPER}).", memory_note]
    notes = [*([] if one_passage else notes), *NOTES]
    settings = {"encoder": name, "rounds": rounds, "lists": lists, "precision": precision_of(accelerator)}
    settings |= {"paper_hours": hours, "gradients": gradients}
    publish(f"Training {name}", rows, COLUMNS, settings, device, notes, out)


PAPER = "2 losses × 5 folds × 100 epochs of 256 lists of 4 documents, 50 × 150 documents scored after each"


def paper_hours(training: float, scoring: float) -> float:
    """Hours for the experiment of PAPER, from documents per second in training and in scoring.

    >>> round(paper_hours(1000.0, 5000.0), 2)
    0.7
    """
    return 2 * 5 * 100 * (256 * LIST / training + 50 * 150 / scoring) / 3600


def measured(
    workload: Workload,
    accelerator: Accelerator,
    rounds: int,
    with_trainer: bool = False,
    cpu_seconds: bool = False,
) -> list[dict[str, Any]]:
    """The rows of the contestants, on all lists of the workload, and of scoring its documents."""
    device, dtype = accelerator.device, product_type(accelerator)
    products = [square_product(device, dtype), layer_products(workload.model.encoder, device, dtype)]
    if compared := dtype == torch.bfloat16 and device.type == "cpu":
        products.append(square_product(device, torch.float32))
    works: dict[str, Work] = {product: work for product, work, _ in products}
    steps = {OURS: our_steps(workload, accelerator), BASELINE: cedr_steps(workload, device, dtype)}
    if device.type == "cpu":
        steps[UNDROPPED] = cedr_steps(workload, device, dtype, attention_probs_dropout_prob=0.0)
    if with_trainer:
        steps[TRAINER] = trainer_steps(workload, device, dtype)
    for step in steps.values():
        step(workload.candidates[:1])  # warm-up, which also creates Adam's state
    works |= {what: partial(step, workload.candidates) for what, step in steps.items()}
    if compared:
        works[EXACT] = in_float32(workload.model, works[OURS])
    works[SCORING] = lambda: our_scores(workload.model, workload, accelerator)
    if workload.model.compiled:  # scoring has graphs of its own
        works[SCORING]()
    seconds = interleaved(works, rounds, device, cpu_seconds=cpu_seconds)
    rows, rates_of_products = product_rows(products, seconds)
    slower = [what for what in (EXACT, BASELINE, UNDROPPED, TRAINER) if what in seconds]
    rows += [rate_row(what, workload, seconds[what], rates_of_products, FORWARDS_OF_A_STEP) for what in (OURS, *slower)]
    for row in rows[-len(slower) :]:
        row[OURS_FASTER] = ratio(seconds[row["what"]], seconds[OURS])
    return [*rows, rate_row(SCORING, workload, seconds[SCORING], rates_of_products)]


Steps = Callable[[Sequence[Candidates]], None]


def batch_of(workload: Workload, lists: Sequence[Candidates]) -> Batch[Any]:
    """The batch of these lists."""
    return make_batch(lists, workload.builder)


def our_steps(workload: Workload, accelerator: Accelerator) -> Steps:
    """A function that trains the workload's model on lists, 8 per step, as `rerank.training.loop` does."""
    model = on_device(workload.model, accelerator)
    optimizer = torch.optim.Adam(model.parameter_groups(2e-5, 1e-3), fused=True)

    budget = open_budget("auto", accelerator.device)

    def steps(lists: Sequence[Candidates]) -> None:
        model.train()
        each = [lists[begin : begin + LISTS_PER_STEP] for begin in range(0, len(lists), LISTS_PER_STEP)]
        for step, batch in prefetch(each, partial(batch_of, workload)):
            accumulate_gradient(model, batch, hinge, 1 / len(step), accelerator, budget)
            optimizer.step()

    return steps


def cedr_steps(
    workload: Workload, device: torch.device, dtype: torch.dtype = torch.float32, **settings: float
) -> Steps:
    """A function that trains the baseline on lists, 8 per step: same encoder, documents, loss and learning rates.

    `dtype` is the type of its products; `settings` are those of the encoder's config.
    """
    from transformers import AutoModel

    encoder = AutoModel.from_pretrained(workload.folder, dtype=torch.float32, **settings)
    builder = workload.builder
    model = Cedr(encoder, builder.template, builder.max_length, workload.tokenizer.pad_token_id).to(device)
    groups = [{"params": model.encoder.parameters(), "lr": 2e-5}, {"params": model.head.parameters(), "lr": 1e-3}]
    optimizer = torch.optim.Adam(groups)
    model.train()

    def steps(lists: Sequence[Candidates]) -> None:
        tokens = [
            (builder.query(c.query_id), [builder.documents[d].tolist() for d in c.doc_ids], c.labels) for c in lists
        ]
        for begin in range(0, len(tokens), LISTS_PER_STEP):
            cedr_step(model, optimizer, tokens[begin : begin + LISTS_PER_STEP], hinge, dtype)

    return steps


def trainer_steps(workload: Workload, device: torch.device, dtype: torch.dtype) -> Steps:
    """A function that trains sentence-transformers' cross-encoder on the pairs of lists, one step for 8 lists.

    `dtype` is the type of its products.
    """
    from datasets import Dataset
    from sentence_transformers import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    model = CrossEncoder(str(workload.folder), num_labels=1, device=str(device))
    half = torch.autocast(device.type, dtype, enabled=dtype != torch.float32, cache_enabled=False)
    settings = {
        "per_device_train_batch_size": TRAINER_BATCH,
        "gradient_accumulation_steps": LIST * LISTS_PER_STEP // TRAINER_BATCH,
        "use_cpu": device.type == "cpu",
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
    }

    def steps(lists: Sequence[Candidates]) -> None:
        pairs = [
            {"query": workload.queries[c.query_id], "document": workload.texts[doc_id], "label": float(label)}
            for c in lists
            for doc_id, label in zip(c.doc_ids, c.labels, strict=True)
        ]
        with TemporaryDirectory() as folder:
            asked = CrossEncoderTrainingArguments(folder, num_train_epochs=1, **settings)
            loss = BinaryCrossEntropyLoss(model)
            trainer = CrossEncoderTrainer(model=model, args=asked, train_dataset=Dataset.from_list(pairs), loss=loss)
            with half:  # the trainer's own argument would set the precision of every accelerator in this process
                trainer.train()

    return steps


GRADIENTS = {"one micro-batch": 0, "a list of 150 documents": 150}
"""Documents of one list; 0 is one full micro-batch."""


def gradient_memory(documents: int, folder: Path) -> Peak:
    """The memory of the gradient of one list of this many documents, or of one full micro-batch for 0."""
    accelerator = open_accelerator(TrainingSettings())
    workload = make_workload(folder, 1, documents or LIST)
    batch = batch_of(workload, workload.candidates)
    model, budget = on_device(workload.model, accelerator).train(), open_budget("auto", accelerator.device)

    def micro_batch() -> None:
        lengths = batch.inputs.lengths()
        inputs = batch.inputs.take([lengths.index(max(lengths))] * (budget.tokens // max(lengths)))
        with accelerator.autocast():
            scores = model(inputs.to(accelerator.device))
        scores.sum().backward()

    work = partial(accumulate_gradient, model, batch, smoothi, 1.0, accelerator, budget) if documents else micro_batch
    return peak_memory(work, accelerator.device)


def step_memory(what: str, folder: Path, lists: int) -> Peak:
    """The memory of one step over some lists, of OURS or BASELINE, in this process."""
    accelerator = open_accelerator(TrainingSettings())
    workload = make_workload(folder, lists, LIST)
    baseline = partial(cedr_steps, workload, accelerator.device, product_type(accelerator))
    steps = our_steps(workload, accelerator) if what == OURS else baseline()
    return peak_memory(lambda: steps(workload.candidates), accelerator.device)
