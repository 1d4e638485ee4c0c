"""Memory that runs out: a step and a scoring go on with smaller micro-batches and give the same numbers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rerank.models.memory import TokenBudget
from rerank.models.scoring import score_candidates
from rerank.training.device import precision_of
from scripts.benchmarks.training import batch_of
from scripts.benchmarks.workload import on_device
from scripts.gpu_check.gradients import device_gradient, of_norm
from scripts.gpu_check.rows import Row, at_most
from scripts.gpu_check.setting import (
    GRADIENT_BOUNDS,
    SCORE_BOUNDS,
    Setting,
    encoder_folder,
    flat_scores,
    of_spread,
    open_documents,
    opened,
)

LISTS = 4
SHARE = 8
"""The whole work is that many times as large as the micro-batches that certainly fit."""

Work = Callable[[TokenBudget], Tensor]


def check(setting: Setting) -> list[Row]:
    """Rows for a training step and for scoring."""
    with encoder_folder(setting.largest) as folder:
        workload = open_documents(folder, LISTS, 4, setting)
    batch = batch_of(workload, workload.candidates)
    tokens = len(batch.inputs.input_ids)
    with opened(setting) as accelerator:
        model = on_device(workload.model, accelerator)
        precision = precision_of(accelerator)

        def step(budget: TokenBudget) -> Tensor:
            return device_gradient(workload, batch, accelerator, budget)

        def scoring(budget: TokenBudget) -> Tensor:
            run = score_candidates(model, workload.builder, workload.candidates, accelerator, budget)
            return flat_scores(run, workload.candidates)

        rows = _survived("a step", step, of_norm, GRADIENT_BOUNDS[precision], model, tokens, accelerator.device)
        rows += _survived("scoring", scoring, of_spread, SCORE_BOUNDS[precision], model, tokens, accelerator.device)
    return rows


def _survived(
    what: str,
    work: Work,
    difference: Callable[[Tensor, Tensor], float],
    bound: float,
    model: nn.Module,
    tokens: int,
    device: torch.device,
) -> list[Row]:
    """The work with a budget of `tokens`, which is more than there is memory for, against the same in small parts."""
    expected = work(TokenBudget(tokens // SHARE))
    budget = TokenBudget(tokens)
    with short_of_memory(work, tokens, model, device) as how:
        found = work(budget)
    halved = Row(
        f"out of memory in {what} ({how}): tokens at a time",
        f"{tokens:,} → {budget.tokens:,}",
        "fewer",
        budget.tokens < tokens,
    )
    return [halved, at_most(f"out of memory in {what}: difference", difference(found, expected), bound)]


@contextmanager
def short_of_memory(work: Work, tokens: int, model: nn.Module, device: torch.device) -> Iterator[str]:
    """Too little memory for the work at once: a cap on a CUDA GPU; elsewhere the model's first pass raises the error.

    Yields how that was done.
    """
    if device.type != "cuda":
        with _failing_once(model, device):
            yield "planted"
        return
    small, large = (_reserved(lambda n=n: work(TokenBudget(n)), device) for n in (tokens // SHARE, tokens))
    cap = (small + large) // 2
    torch.cuda.empty_cache()
    card = torch.cuda.current_device() if device.index is None else device.index
    torch.cuda.set_per_process_memory_fraction(cap / torch.cuda.get_device_properties(card).total_memory, card)
    try:
        yield f"cap of {cap / 1e6:,.0f} MB"
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, card)


def _reserved(work: Callable[[], Any], device: torch.device) -> int:
    """The bytes that torch's allocator holds at most during some work."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    work()
    return torch.cuda.max_memory_reserved(device)


@contextmanager
def _failing_once(model: nn.Module, device: torch.device) -> Iterator[None]:
    message = {"mps": "MPS backend out of memory (planted)", "cpu": "DefaultCPUAllocator: can't allocate memory"}
    failed = False

    def fail(*_: Any) -> None:
        nonlocal failed
        if not failed:
            failed = True
            raise RuntimeError(message[device.type])

    hook = model.register_forward_pre_hook(fail)
    try:
        yield
    finally:
        hook.remove()
