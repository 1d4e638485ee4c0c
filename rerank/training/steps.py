"""The steps of a training: whose lists they take, their learning rates, their gradients, and what an optimizer does.

In float16 the loss is scaled so that small gradients do not become 0, and a step whose gradient overflows is skipped
(Micikevicius et al.: Mixed Precision Training, ICLR 2018). torch's GradScaler halves the scale after a step that
overflows, and doubles it after 2,000 steps in a row that do not. Scales are powers of two, so scaling rounds nothing.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from torch import nn

from rerank.config import TrainingSettings
from rerank.data.types import Candidates
from rerank.utils.errors import UserError

INITIAL = "initial_lr"  # of a parameter group: the learning rate that the schedule multiplies, as torch names it

SMALLEST = 2.0**-4
"""The scale at which a gradient that still overflows is not one of float16's range but of a broken model."""


class Step(NamedTuple):
    """One process's lists of a step; `total` counts the lists of all processes."""

    lists: list[Candidates]
    total: int


def make_steps(lists: Sequence[Candidates], lists_per_step: int, accelerator: Accelerator) -> list[Step]:
    """The steps of an epoch; each process takes every n-th list of a step."""
    processes, rank = accelerator.num_processes, accelerator.process_index
    steps = []
    for first in range(0, len(lists), lists_per_step):
        step = lists[first : first + lists_per_step]
        if len(step) < processes:
            raise UserError(
                f"{processes} processes share the lists of a step, but a step has only {len(step)}: "
                f"use at most that many processes, or change --training.lists-per-step"
            )
        steps.append(Step(list(step[rank::processes]), len(step)))
    return steps


def make_optimizer(groups: list[dict[str, Any]], weight_decay: float) -> torch.optim.Optimizer:
    """Adam for parameter groups; with a weight decay AdamW (Loshchilov and Hutter, ICLR 2019).

    Weight matrices and embeddings are decayed. Tensors of fewer than two dimensions are not: biases, the weights of
    norms, and scalars.
    """
    if weight_decay:
        groups = [
            {**group, "params": some, "weight_decay": decay}
            for group in groups
            for decay, is_decayed in ((weight_decay, True), (0.0, False))
            if (some := [parameter for parameter in group["params"] if (parameter.ndim > 1) == is_decayed])
        ]
    for group in groups:
        group[INITIAL] = group["lr"]
    return torch.optim.AdamW(groups, fused=True) if weight_decay else torch.optim.Adam(groups, fused=True)


def learning_rate_factor(settings: TrainingSettings, done: int, total: int) -> float:
    """The factor of the learning rates after `done` of `total` steps.

    It rises linearly over the first `settings.warmup_ratio` of the steps, up to 1; then it stays, or with the schedule
    "linear" it falls by the same amount each step, so that it would be 0 after the last one.
    """
    warmup = settings.warmup_ratio * total
    rising = (done + 1) / warmup if done + 1 < warmup else 1.0
    if settings.schedule == "constant":
        return rising
    return min(rising, max(total - done, 0) / max(total - warmup, 1.0))


def loss_scale(accelerator: Accelerator) -> float:
    """The factor of the loss in the next step; 1 if the precision needs none."""
    scaler = accelerator.scaler
    return 1.0 if scaler is None else float(scaler.scale(torch.ones((), device=accelerator.device)))


def sum_gradients(model: nn.Module, broken: int, accelerator: Accelerator) -> int:
    """Sums the gradients, and the number of broken lists, over the processes; returns the latter.

    They become parts of one buffer, which is sent at once: a message for each parameter would cost more in waiting than
    in bytes.
    """
    if accelerator.num_processes == 1:
        return broken
    gradients = {parameter: parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None}
    buffer = torch.cat([*gradients.values(), torch.tensor([float(broken)], device=accelerator.device)])
    torch.distributed.all_reduce(buffer)
    for parameter, part in zip(gradients, buffer[:-1].split([len(g) for g in gradients.values()]), strict=True):
        parameter.grad = part.view_as(parameter).to(parameter.dtype)
    return int(buffer[-1])


def take_step(model: nn.Module, optimizer: torch.optim.Optimizer, clip: float, accelerator: Accelerator) -> bool:
    """Clips the gradient to the norm `clip`, if it is not 0, and takes a step with it; False if the step is skipped.

    The gradient is that of the loss times `loss_scale`, summed over the processes, so all of them decide alike. Raises
    UserError if the gradient is not finite whatever the scale.
    """
    scaler = accelerator.scaler
    if scaler is not None:
        scaler.unscale_(optimizer)
    if clip:
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    if scaler is None:
        optimizer.step()
        return True
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    after = float(scaler.get_scale())
    if after < SMALLEST:
        raise UserError(
            f"the gradient is not finite in float16, even if the loss is scaled by {before:g}; take "
            "--training.precision float32, under another --name"
        )
    return after >= float(before)
