"""Documents and tokens per second, of training and scoring, beside a CEDR-style loop and CrossEncoder.predict."""

from dataclasses import dataclass, replace

import torch
from accelerate import Accelerator

from rerank.training.device import device_name
from scripts.benchmarks.baselines import open_sentence_cross_encoder
from scripts.benchmarks.flops import FORWARDS_OF_A_STEP, forward_flops
from scripts.benchmarks.scoring import our_scores, predictions, text_pairs
from scripts.benchmarks.training import LIST, LISTS_PER_STEP, PAPER, cedr_steps, our_steps, paper_hours
from scripts.benchmarks.workload import Workload, make_workload, on_device
from scripts.gpu_check.peaks import peak_of
from scripts.gpu_check.rows import Row, at_least, at_most
from scripts.gpu_check.setting import encoder_folder, opened, precision_of
from scripts.gpu_check.sizes import Setting
from scripts.gpu_check.timings import Rate, Work, timed

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
TARGET_CARD = "H200"
TARGETS = {"training": 0.40, "scoring": 0.50}
"""The model-FLOP utilisation that TARGET_CARD is to reach."""

TARGET_HOURS = 1.5
PRODUCTS = 200
"""Matrix products of a round, at most."""

QUERY = 8
"""Documents of a query that is scored."""

BATCHES = (32, 128)
"""The batch sizes of CrossEncoder.predict; the faster one counts."""

CEDR, PREDICT = "CEDR-style loop", "CrossEncoder.predict"
NOTES = (
    "MFU: operations on real tokens (training counts as three forward passes) over the peak of the card's data sheet.",
    f"{CEDR}: padded, a list at a time. {PREDICT}: of sentence-transformers, the faster of the batch sizes "
    f"{' and '.join(map(str, BATCHES))}, with documents of one passage.",
    f"The paper's table: {PAPER}, without the time of losses, saving and tests.",
)


@dataclass(frozen=True)
class _Machine:
    """The device, and its rates in operations per second: `peak` by its data sheet, `product` as measured."""

    setting: Setting
    accelerator: Accelerator
    card: str
    peak: float | None
    product: float

    def timed(self, works: dict[str, Work], least: int, most: int) -> dict[str, Rate]:
        """The rates of these contestants."""
        sizes = self.setting.sizes
        return timed(works, min(least, most), most, sizes.seconds, sizes.rounds, self.accelerator.device)

    @property
    def is_bounded(self) -> bool:
        """Whether to be slower than others is a failure: at full size on a GPU."""
        return self.setting.sizes.is_full and self.setting.kind != "cpu"


def check(setting: Setting) -> list[Row]:
    """The rows of the encoder that `setting.sizes.speed` names, in the precision of a run."""
    with opened(setting) as accelerator:
        precision, device = precision_of(accelerator), accelerator.device
        card = device_name(device)
        peak = peak_of(card) if setting.kind == "cuda" and precision in TYPES else None
        product = _product(setting, device, TYPES.get(precision, torch.float32))
        machine = _Machine(setting, accelerator, card, peak, product)
        rows = [Row(f"matrix product, {precision}", f"{machine.product / 1e12:,.3g} TFLOP/s")]
        trained, training, cedr = _training(machine)
        scored, scoring, predict = _scoring(machine)
    return [*rows, *trained, *scored, *_hours(machine, training, cedr, scoring, predict)]


def _product(setting: Setting, device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second of a square matrix product: what the device reaches of its peak."""
    side = (8192 if device.type == "cuda" else 4096) if setting.sizes.is_full else 512
    left, right = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))

    def multiply(times: int) -> None:
        for _ in range(times):
            left @ right

    rates = timed({"matrix product": multiply}, 1, PRODUCTS, setting.sizes.seconds, setting.sizes.rounds, device)
    return 2.0 * side**3 * rates["matrix product"].per_second


def _training(machine: _Machine) -> tuple[list[Row], float, float]:
    """The rows, and documents per second of rerank and of the CEDR-style loop."""
    sizes, device = machine.setting.sizes, machine.accelerator.device
    with encoder_folder(sizes.speed) as folder:
        workload = make_workload(folder, sizes.speed_lists, LIST)
        on_device(workload.model, machine.accelerator)
        ours = our_steps(workload, machine.accelerator)
        works: dict[str, Work] = {"training": lambda lists: ours(workload.candidates[:lists])}
        memory = [_memory_row("training", works["training"], device, 0)]
        held = _allocated(device)
        cedr = cedr_steps(workload, device, TYPES.get(precision_of(machine.accelerator), torch.bfloat16))
        works[CEDR] = lambda lists: cedr(workload.candidates[:lists])
        memory.append(_memory_row(CEDR, works[CEDR], device, held))
    rates = machine.timed(works, LISTS_PER_STEP, sizes.speed_lists)
    rows = _rate_rows(machine, "training", rates["training"], workload, LIST, FORWARDS_OF_A_STEP)
    others = rates[CEDR].per_second * LIST
    rows.append(Row(f"{CEDR}: documents/s", f"{others:,.1f}"))
    faster = rates["training"].faster_than(rates[CEDR])
    rows.append(at_least(f"training: × {CEDR}", faster, 1.0 if machine.is_bounded else None))
    return rows + memory, rates["training"].per_second * LIST, others


def _scoring(machine: _Machine) -> tuple[list[Row], float, float | None]:
    """The rows, and documents per second of rerank and of predict; None if that is not installed."""
    sizes, accelerator = machine.setting.sizes, machine.accelerator
    queries = max(1, sizes.speed_documents // QUERY)
    with encoder_folder(sizes.speed, own_head=True) as folder:
        held = _allocated(accelerator.device)
        long, short = (make_workload(folder, queries, QUERY, one_passage=one) for one in (False, True))
        model = on_device(long.model, accelerator)  # the other workload has the same
        works: dict[str, Work] = {"scoring": lambda some: our_scores(model, _first(long, some), accelerator)}
        memory = _memory_row("scoring", works["scoring"], accelerator.device, held)
        baseline = open_sentence_cross_encoder(str(folder), accelerator.device)
    on_short = "scoring, documents of one passage"
    works[on_short] = lambda some: our_scores(model, _first(short, some), accelerator)
    if baseline is not None:
        works |= {
            f"{PREDICT}, batch {size}": lambda some, size=size: predictions(
                baseline, text_pairs(_first(short, some)), size, accelerator
            )
            for size in BATCHES
        }
    rates = machine.timed(works, 2 * QUERY, queries)
    rows = _rate_rows(machine, "scoring", rates["scoring"], long, QUERY)
    rows.append(memory)
    rows.append(Row(f"{on_short}: documents/s", f"{rates[on_short].per_second * QUERY:,.1f}"))
    peers = {name: rate for name, rate in rates.items() if name.startswith(PREDICT)}
    if not peers:
        rows.append(Row(f"{PREDICT}: documents/s", "not measured: sentence-transformers is not installed"))
        return rows, rates["scoring"].per_second * QUERY, None
    best = max(peers, key=lambda name: peers[name].per_second)
    predict = peers[best].per_second * QUERY
    rows.append(Row(f"{best}: documents/s", f"{predict:,.1f}"))
    faster = rates[on_short].faster_than(peers[best])
    rows.append(at_least(f"{on_short}: × predict", faster, 1.0 if machine.is_bounded else None))
    return rows, rates["scoring"].per_second * QUERY, predict


def _first(workload: Workload, lists: int) -> Workload:
    return replace(workload, candidates=workload.candidates[:lists])


def _rate_rows(
    machine: _Machine, what: str, rate: Rate, workload: Workload, documents: int, forwards: int = 1
) -> list[Row]:
    """Documents and tokens per second and the MFU, of lists of so many documents."""
    lengths = _first(workload, rate.units).passage_lengths()
    model = workload.model
    operations = forwards * forward_flops(model.encoder, lengths, packed=not model.is_padded)
    per_second = operations / rate.units * rate.per_second
    rows = [
        Row(f"{what}, {machine.setting.sizes.speed}: documents/s", f"{rate.per_second * documents:,.1f}"),
        Row(f"{what}: tokens/s", f"{int(lengths.sum()) / rate.units * rate.per_second:,.0f}"),
        Row(f"{what}: of the matrix product", f"{per_second / machine.product:.2f}"),
    ]
    if machine.peak is None:
        return [*rows, Row(f"{what}: MFU", f"unknown: no peak rate for {machine.card} in this precision")]
    target = TARGETS[what] if TARGET_CARD in machine.card and machine.is_bounded else None
    return [*rows, at_least(f"{what}: MFU", per_second / machine.peak, target)]


def _allocated(device: torch.device) -> int:
    """The bytes of the tensors on a CUDA GPU; 0 elsewhere."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def _memory_row(what: str, work: Work, device: torch.device, held: int) -> Row:
    """The peak memory of a step or of some scoring, with weights and all else but `held` bytes of other models."""
    check = f"{what}: peak memory"
    if device.type != "cuda":
        return Row(check, "not measured: is that of tensors on CUDA GPUs")
    torch.cuda.reset_peak_memory_stats(device)
    work(LISTS_PER_STEP)
    return Row(check, f"{(torch.cuda.max_memory_allocated(device) - held) / 1e6:,.0f} MB")


def _hours(machine: _Machine, training: float, cedr: float, scoring: float, predict: float | None) -> list[Row]:
    what, hours = "the paper's table on Robust04", paper_hours(training, scoring)
    row = Row(what, f"{hours:,.1f} h")
    if TARGET_CARD in machine.card and machine.is_bounded:
        row = at_most(what, hours, TARGET_HOURS, ",.1f", " h")
    if predict is None:
        return [row]
    return [row, Row(f"{what}: {CEDR} and predict", f"{paper_hours(cedr, predict):,.1f} h")]
