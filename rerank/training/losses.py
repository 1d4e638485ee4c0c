"""The loss of a configuration, its name and hyperparameters checked."""

import inspect
from functools import partial

import torch

from rerank.config import Config
from rerank.errors import UserError, nearest
from rerank.losses import LOSSES
from rerank.training.gradients import Loss


def make_loss(config: Config) -> Loss:
    """The loss of a configuration; raises UserError for an unknown name or a hyperparameter that it does not have."""
    table = config.loss
    if table.name not in LOSSES:
        raise UserError(f"--loss {table.name}: no such loss; {nearest(table.name, LOSSES)}")
    function = LOSSES[table.name]
    taken = [name for name in list(inspect.signature(function).parameters)[3:] if name != "generator"]
    for key in table.hyperparameters():
        if key not in taken:
            raise UserError(
                f"--loss.{key.replace('_', '-')}: {table.name} has no such hyperparameter; "
                f"it takes {', '.join(taken) or 'none'}"
            )
    loss: Loss = partial(function, **table.hyperparameters())
    _try(loss, table.name)
    return loss


def _try(loss: Loss, name: str) -> None:
    try:
        loss(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([[True, True]]))
    except ValueError as error:
        raise UserError(f"--loss {name}: {error}") from error
