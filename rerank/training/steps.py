"""The steps of a training: their lists, learning rates and gradients, and the optimizer.

In float16 the loss is scaled so that small gradients do not become 0, and a step whose gradient overflows is skipped
(Micikevicius et al.: Mixed Precision Training, ICLR 2018). torch's GradScaler halves the scale after an overflow, and
doubles it after 2,000 consecutive steps without one. Scales are powers of two, so scaling is exact.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from torch import nn

from rerank.config import TrainingSettings
from rerank.data.types import Candidates
from rerank.utils.errors import UserError

INITIAL = "initial_lr"
"""The key of a parameter group for the learning rate that the schedule multiplies; torch uses the same name."""

SMALLEST = 2.0**-4
"""The smallest scale: a gradient that still overflows comes from a broken model, not from the range of float16."""


class Step(NamedTuple):
    """One process's lists of a step; `total` counts the lists of all processes.

    A process without a list of its own `borrows` one, whose gradient counts 0 times: all processes then sum the
    gradients of the same parameters.
    """

    lists: list[Candidates]
    total: int
    borrows: bool = False


def make_steps(lists: Sequence[Candidates], lists_per_step: int, accelerator: Accelerator) -> list[Step]:
    """The steps of an epoch; each process takes every n-th list of a step."""
    processes, rank = accelerator.num_processes, accelerator.process_index
    steps = []
    for first in range(0, len(lists), lists_per_step):
        step = lists[first : first + lists_per_step]
        own = list(step[rank::processes])
        steps.append(Step(own or list(step[:1]), len(step), borrows=not own))
    return steps


def make_optimizer(groups: list[dict[str, Any]], weight_decay: float) -> torch.optim.Optimizer:
    """Adam for the parameter groups, or AdamW with weight decay (Loshchilov and Hutter, ICLR 2019).

    Weight decay applies to matrices and embeddings, but not to tensors of fewer than two dimensions: biases, the
    weights of norms, and scalars.
    """
    if weight_decay:
        groups = [
            {**group, "params": chosen, "weight_decay": decay}
            for group in groups
            for decay, is_decayed in ((weight_decay, True), (0.0, False))
            if (chosen := [parameter for parameter in group["params"] if (parameter.ndim > 1) == is_decayed])
        ]
    for group in groups:
        group[INITIAL] = group["lr"]
    return torch.optim.AdamW(groups, fused=True) if weight_decay else torch.optim.Adam(groups, fused=True)


def learning_rate_factor(settings: TrainingSettings, done: int, total: int) -> float:
    """The factor of the learning rates after `done` of `total` steps.

    It rises linearly to 1 over the first `settings.warmup_ratio` of the steps. Then it stays at 1, or with the schedule
    "linear" it falls linearly to 0 after the last step.
    """
    warmup = settings.warmup_ratio * total
    rising = (done + 1) / warmup if done + 1 < warmup else 1.0
    if settings.schedule == "constant":
        return rising
    return min(rising, max(total - done, 0) / max(total - warmup, 1.0))


def loss_scale(accelerator: Accelerator) -> float:
    """The factor of the loss in the next step; 1 without a gradient scaler."""
    scaler = accelerator.scaler
    return 1.0 if scaler is None else float(scaler.scale(torch.ones((), device=accelerator.device)))


def sum_gradients(model: nn.Module, broken: int, accelerator: Accelerator) -> int:
    """Sums the gradients and the number of broken lists over the processes; returns the number.

    They are sent in one buffer, because one message per parameter would be dominated by latency.
    """
    if accelerator.num_processes == 1:
        return broken
    gradients = {parameter: parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None}
    buffer = torch.cat([*gradients.values(), torch.tensor([float(broken)], device=accelerator.device)])
    torch.distributed.all_reduce(buffer)
    for parameter, summed in zip(gradients, buffer[:-1].split([len(g) for g in gradients.values()]), strict=True):
        parameter.grad = summed.view_as(parameter).to(parameter.dtype)
    return int(buffer[-1])


def take_step(model: nn.Module, optimizer: torch.optim.Optimizer, clip: float, accelerator: Accelerator) -> bool:
    """Clips the gradient to the norm `clip`, unless it is 0, and takes a step; returns False if the step is skipped.

    The gradient is scaled by `loss_scale` and summed over the processes, so all processes decide alike. Raises
    UserError if the gradient is not finite even at the scale SMALLEST.
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
