"""The optimizer of a training, and the schedule of its learning rates."""

from typing import Any

import torch
from torch import Tensor

from rerank.config import TrainingSettings

INITIAL = "initial_lr"
"""Where a parameter group keeps the learning rate that the schedule multiplies, as torch's schedulers have it."""


def make_optimizer(groups: list[dict[str, Any]], weight_decay: float) -> torch.optim.Optimizer:
    """Adam for parameter groups; with a weight decay AdamW (Loshchilov and Hutter, ICLR 2019).

    Weight matrices and embeddings are decayed. Tensors of fewer than two dimensions are not: biases, the weights of
    norms, and scalars.
    """
    if weight_decay:
        groups = [part for group in groups for part in _by_decay(group, weight_decay)]
    for group in groups:
        group[INITIAL] = group["lr"]
    return torch.optim.AdamW(groups, fused=True) if weight_decay else torch.optim.Adam(groups, fused=True)


def _by_decay(group: dict[str, Any], weight_decay: float) -> list[dict[str, Any]]:
    """The parameters of a group that are decayed, and the others; without empty groups."""
    matrices: list[Tensor] = [parameter for parameter in group["params"] if parameter.ndim > 1]
    others: list[Tensor] = [parameter for parameter in group["params"] if parameter.ndim <= 1]
    parts = [
        {**group, "params": matrices, "weight_decay": weight_decay},
        {**group, "params": others, "weight_decay": 0.0},
    ]
    return [part for part in parts if part["params"]]


def set_learning_rates(optimizer: torch.optim.Optimizer, settings: TrainingSettings, done: int, total: int) -> None:
    """Sets the learning rates of the step after `done` of `total` steps; they depend on these numbers alone."""
    factor = learning_rate_factor(settings, done, total)
    for group in optimizer.param_groups:
        group["lr"] = group[INITIAL] * factor


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
