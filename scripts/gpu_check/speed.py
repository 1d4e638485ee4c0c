"""Documents and tokens per second, by the benchmarks of training and scoring, and what a GPU reaches of its peak."""

import time
from dataclasses import replace
from typing import Any

from accelerate import Accelerator

from rerank.training.device import device_name, precision_of
from scripts.benchmarks import scoring, training
from scripts.benchmarks.memory import peak_memory
from scripts.benchmarks.peaks import peak_of
from scripts.benchmarks.timing import synchronise
from scripts.benchmarks.workload import Workload, make_workload, on_device
from scripts.gpu_check.rows import Row, at_least, at_most
from scripts.gpu_check.setting import Setting, encoder_folder, opened

TARGET_CARD = "H200"
TARGETS = {f"training, {training.OURS}": 0.40, f"scoring, {scoring.OURS_LONG}": 0.50}
"""The model-FLOP utilisation that TARGET_CARD is to reach."""

TARGET_HOURS = 1.5
ROUNDS = 3
SECONDS = 4.0
"""About the seconds of a contestant in a round."""

MOST = 128
"""Lists of a round, at most."""

NOTES = (
    "MFU: operations on real tokens (training counts as three forward passes) over the peak of the card's data sheet.",
    "CEDR-style loop: padded, a list at a time. predict: CrossEncoder.predict of sentence-transformers at its best "
    "batch size, with documents of one passage.",
    f"The paper's table: {training.PAPER}, without the time of losses, saving and tests.",
)


def check(setting: Setting) -> list[Row]:
    """The rows of the largest encoder, in the precision of a run. On a GPU, rerank is to be faster than its peers."""
    with opened(setting) as accelerator:
        with encoder_folder(setting.largest) as folder:
            workload = make_workload(folder, MOST if setting.full else 2, training.LIST)
            workload, peak = _as_much_as_fits(setting, workload, accelerator)
            trained = training.measured(workload, accelerator, ROUNDS if setting.full else 1)
        queries = max(2, len(workload.candidates) // 2)
        with encoder_folder(setting.largest, own_head=True) as folder:
            short, long = (make_workload(folder, queries, 4 * training.LIST, one_passage=one) for one in (True, False))
            scored, _ = scoring.measured(short, long, accelerator, ROUNDS if setting.full else 1)
        card, half = device_name(accelerator.device), precision_of(accelerator) in ("bf16", "fp16")
    highest = peak_of(card) if setting.kind == "cuda" and half else None
    rows = [Row("training: peak memory of a step", peak)]
    for what, found in (("training", trained), ("scoring", scored)):
        for row in found:
            rows += _rows(setting, card, highest, f"{what}, {row['what']}", row)
    rates = {row["what"]: row.get("documents/s", 0.0) for row in [*scored, *trained]}
    hours = training.paper_hours(rates[training.OURS], rates[scoring.OURS_LONG])
    bounded = setting.full and setting.kind == "cuda" and TARGET_CARD in card
    return [*rows, at_most("the paper's table on Robust04", hours, TARGET_HOURS if bounded else None, ",.1f", " h")]


def _as_much_as_fits(setting: Setting, workload: Workload, accelerator: Accelerator) -> tuple[Workload, str]:
    """As many of the lists as are trained in SECONDS, and the peak memory of a step."""
    device, step = accelerator.device, workload.candidates[: training.LISTS_PER_STEP]
    on_device(workload.model, accelerator)
    steps = training.our_steps(workload, accelerator)
    steps(step)  # loads kernels and makes the optimizer's state
    memory = "not measured: is that of tensors on CUDA GPUs"
    if setting.kind == "cuda":
        memory = f"{peak_memory(lambda: steps(step), device).most / 1e6:,.0f} MB"
    synchronise(device)
    begun = time.perf_counter()
    steps(step)
    synchronise(device)
    times = int(SECONDS / max(time.perf_counter() - begun, 1e-6))
    lists = training.LISTS_PER_STEP * max(1, times)
    return replace(workload, candidates=workload.candidates[:lists]), memory


def _rows(setting: Setting, card: str, highest: float | None, what: str, row: dict[str, Any]) -> list[Row]:
    """What a row of a benchmark says, with the bounds on a GPU."""
    per_second = row["useful GFLOP/s"] * 1e9
    if "documents/s" not in row:
        return [Row(what, f"{per_second / 1e12:,.3g} TFLOP/s")]
    rows = [Row(f"{what}: documents/s, tokens/s", f"{row['documents/s']:,.1f}, {row['tokens/s']:,.0f}")]
    if what in TARGETS:
        rows.append(Row(f"{what}: of the matrix product", f"{row['of the product']:.2f}"))
        bounded = setting.full and TARGET_CARD in card
        if highest is None:
            rows.append(Row(f"{what}: MFU", f"unknown: no peak rate for {card} in this precision"))
        else:
            rows.append(at_least(f"{what}: MFU", per_second / highest, TARGETS[what] if bounded else None))
    faster = row.get(training.OURS_FASTER)
    if faster is not None:
        bounded = setting.full and setting.kind != "cpu"
        rows.append(at_least(f"{what}: rerank is × faster", faster, 1.0 if bounded else None))
    return rows
