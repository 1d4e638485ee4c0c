"""Gradients on the device against those of one graph on the CPU in float32; lists in parts, also with dropout."""

from typing import Any

import torch
from torch import Tensor, nn

from rerank.batches.batch import Batch, make_microbatches, restore_order
from rerank.losses import smoothi
from rerank.models.memory import TokenBudget, open_budget
from rerank.training.gradients import accumulate_gradient
from scripts.benchmarks.training import batch_of
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

DROPPED_LIST = 16
"""Documents of the list whose gradient is computed in PARTS, and in one graph with the same dropout."""

TOKENS = 8192
"""The smaller budget that the long list's gradient in the large encoder is compared with."""


def check(setting: Setting) -> list[Row]:
    """A row for each encoder, list and precision."""
    rows = []
    for name, (lists, documents) in setting.encoders.items():
        rows += _against_cpu(setting, precisions(setting), name, lists, documents)
    rows += _against_cpu(setting, [own_precision(setting)], TINY, 1, LONG_LIST, PARTS)
    rows.append(_with_dropout(setting))
    if setting.full:
        rows.append(_against_small_budget(setting))
    return rows


def _against_cpu(
    setting: Setting, tried: list[str], name: str, lists: int, documents: int, parts: int = 1
) -> list[Row]:
    with encoder_folder(name) as folder:
        workload = open_documents(folder, lists, documents, setting)
    batch = batch_of(workload, workload.candidates)
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


def _with_dropout(setting: Setting) -> Row:
    """A list in parts, each of which goes through the model twice, against one graph of the same parts."""
    with encoder_folder(setting.largest) as folder:
        workload = open_documents(folder, 1, DROPPED_LIST, setting)
    batch, precision = batch_of(workload, workload.candidates), own_precision(setting)
    tokens = len(batch.inputs.input_ids) // PARTS
    with opened(setting, precision) as accelerator:
        model = on_device(workload.model, accelerator).train()
        torch.manual_seed(0)
        accumulate_gradient(model, batch, smoothi, LOSS_SCALE, accelerator, TokenBudget(tokens))
        found = _flat_gradient(model)
        torch.manual_seed(0)
        groups, parts = make_microbatches(batch.inputs.lengths(), tokens, model.is_padded), []
        for group in groups:
            with accelerator.autocast():
                parts.append(model(batch.inputs.take(group).to(accelerator.device)))
        flat = model.pool(restore_order(torch.cat(parts).cpu(), groups), batch.inputs.documents)
        (smoothi(batch.grid(flat), batch.labels, batch.mask).sum() * LOSS_SCALE).backward()
        expected = _flat_gradient(model)
    what = (
        f"gradient, {setting.largest}, {precision}, {DROPPED_LIST} documents in parts with dropout: difference / norm"
    )
    return at_most(what, of_norm(found, expected), GRADIENT_BOUNDS[precision])


def _against_small_budget(setting: Setting) -> Row:
    """The long list in the large encoder, which a CPU cannot give in time: with `auto` and with a small budget."""
    name, documents = setting.largest, LONG_LIST
    with encoder_folder(name) as folder:
        workload = open_documents(folder, 1, documents, setting)
    batch = batch_of(workload, workload.candidates)
    precision = own_precision(setting)
    with opened(setting, precision) as accelerator:
        expected = device_gradient(workload, batch, accelerator, TokenBudget(TOKENS))
        found = device_gradient(workload, batch, accelerator, open_budget("auto", accelerator.device))
    what = f"gradient, {name}, {precision}, a list of {documents} documents: auto / {TOKENS:,} tokens at a time"
    return at_most(what, of_norm(found, expected), GRADIENT_BOUNDS[precision])


def cpu_gradient(model: nn.Module, batch: Batch[Any]) -> Tensor:
    """(weights,) float32: the gradient of the mean of the lists' losses without dropout, in one graph on the CPU."""
    model.to("cpu").eval()
    model.zero_grad(set_to_none=True)
    flat = model.pool(model(batch.inputs), batch.inputs.documents)
    smoothi(batch.grid(flat), batch.labels, batch.mask).mean().backward()
    return _flat_gradient(model)


def device_gradient(workload: Workload, batch: Batch[Any], accelerator: Any, budget: TokenBudget) -> Tensor:
    """(weights,) float32 on the CPU: the same as a step of `rerank train` computes it, but for dropout."""
    model = on_device(workload.model, accelerator).eval()
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
