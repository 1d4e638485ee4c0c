"""float16: the loss is scaled so that small gradients do not become 0, and a step whose gradient overflows is skipped.

Micikevicius et al.: Mixed Precision Training, ICLR 2018. torch's GradScaler halves the scale after a step that
overflows, and doubles it after 2,000 steps in a row that do not. Scales are powers of two, so scaling rounds nothing.
"""

import torch
from accelerate import Accelerator
from torch import nn

from rerank.utils.errors import UserError

SMALLEST = 2.0**-4
"""The scale at which a gradient that still overflows is not one of float16's range but of a broken model."""


def loss_scale(accelerator: Accelerator) -> float:
    """The factor of the loss in the next step; 1 if the precision needs none."""
    scaler = accelerator.scaler
    if scaler is None:
        return 1.0
    return float(scaler.scale(torch.ones((), device=accelerator.device)))


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
