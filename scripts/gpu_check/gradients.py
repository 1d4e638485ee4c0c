"""Gradients on the device against those of one graph on the CPU in float32, with dropout; a long list in parts."""

from typing import Any

import torch
from torch import Tensor, nn

from rerank.batches.batch import Batch
from rerank.losses import smoothi
from rerank.models.memory import TokenBudget, open_budget
from rerank.training.gradients import accumulate_gradient
from scripts.benchmarks.training import seeded_batch
from scripts.benchmarks.workload import Workload, on_device
from scripts.gpu_check.rows import Row, at_most
from scripts.gpu_check.setting import (
    GRADIENT_BOUNDS,
    LONG_LIST,
    TINY,
    Setting,
    encoder_folder,
    open_documents,
    opened,
    own_precision,
    precisions,
)

LOSS_SCALE = 2.0**10
"""The factor of the loss: float16 rounds small gradients to 0. It rounds nothing, and the gradient is divided by it."""

PARTS = 4
"""The parts in which the long list's documents go through the tiny encoder."""

TOKENS = 8192
"""The smaller budget that the long list's gradient in the large encoder is compared with."""


def check(setting: Setting) -> list[Row]:
    """A row for each encoder, list and precision."""
    rows = []
    for name, (lists, documents) in setting.encoders.items():
        rows += _against_cpu(setting, precisions(setting), name, lists, documents)
    rows += _against_cpu(setting, [own_precision(setting)], TINY, 1, LONG_LIST, PARTS)
    if setting.full:
        rows.append(_against_small_budget(setting))
    return rows


def _against_cpu(
    setting: Setting, tried: list[str], name: str, lists: int, documents: int, parts: int = 1
) -> list[Row]:
    with encoder_folder(name) as folder:
        workload = open_documents(folder, lists, documents, setting)
    batch = seeded_batch(workload, workload.candidates)
    expected = cpu_gradient(workload.model, batch)
    rows = []
    for precision in tried:
        with opened(setting, precision) as accelerator:
            budget = open_budget("auto", accelerator.device)
            if parts > 1:
                budget = TokenBudget(len(batch.inputs.input_ids) // parts)
            found = device_gradient(workload, batch, accelerator, budget)
        size = f"a list of {documents} documents in parts" if parts > 1 else f"{lists} × {documents} documents"
        what = f"gradient, {name}, {precision}, {size}: difference / norm"
        rows.append(at_most(what, of_norm(found, expected), GRADIENT_BOUNDS[precision]))
    return rows


def _against_small_budget(setting: Setting) -> Row:
    """The long list in the large encoder, which a CPU cannot give in time: with `auto` and with a small budget."""
    name, documents = setting.largest, LONG_LIST
    with encoder_folder(name) as folder:
        workload = open_documents(folder, 1, documents, setting)
    batch = seeded_batch(workload, workload.candidates)
    precision = own_precision(setting)
    with opened(setting, precision) as accelerator:
        expected = device_gradient(workload, batch, accelerator, TokenBudget(TOKENS))
        found = device_gradient(workload, batch, accelerator, open_budget("auto", accelerator.device))
    what = f"gradient, {name}, {precision}, a list of {documents} documents: auto / {TOKENS:,} tokens at a time"
    return at_most(what, of_norm(found, expected), GRADIENT_BOUNDS[precision])


def cpu_gradient(model: nn.Module, batch: Batch[Any]) -> Tensor:
    """(weights,) float32: the gradient of the mean of the lists' losses, in one graph on the CPU."""
    model.to("cpu").train()
    model.zero_grad(set_to_none=True)
    flat = model.pool(model(batch.inputs), batch.inputs.documents)
    smoothi(batch.grid(flat), batch.labels, batch.mask).mean().backward()
    return _flat_gradient(model)


def device_gradient(workload: Workload, batch: Batch[Any], accelerator: Any, budget: TokenBudget) -> Tensor:
    """(weights,) float32 on the CPU: the same as a step of `rerank train` computes it."""
    model = on_device(workload.model, accelerator).train()
    accumulate_gradient(model, batch, smoothi, LOSS_SCALE / len(batch.labels), accelerator, budget)
    return _flat_gradient(model) / LOSS_SCALE


def _flat_gradient(model: nn.Module) -> Tensor:
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    gradient = torch.cat([part.detach().float().cpu().flatten() for part in parts])
    model.zero_grad(set_to_none=True)
    return gradient


def of_norm(found: Tensor, expected: Tensor) -> float:
    """The norm of the difference, over the norm of the expected gradient."""
    return float((found - expected).norm() / expected.norm())
