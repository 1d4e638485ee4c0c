"""The loss of an experiment, made from its settings."""

from rerank.config import LossSettings
from rerank.losses import LOSSES, create
from rerank.losses.registry import refusal
from rerank.training.gradients import Loss
from rerank.utils.errors import UserError, nearest
from rerank.utils.registry import describe


def open_loss(settings: LossSettings, flag: str = "--loss") -> Loss:
    """Returns the loss of these settings.

    Args:
        settings: its name and hyperparameters.
        flag: the flag that names the loss, for messages.

    Raises:
        UserError: there is no such loss or hyperparameter, or a value is out of range.
    """
    name = settings.name
    if name not in LOSSES:
        raise UserError(f"{flag} {name}: no such loss; {nearest(name, LOSSES)}")
    taken = describe(name, LOSSES[name]).hyperparameters
    for key in settings.hyperparameters:
        if key not in taken:
            raise UserError(f"{flag}.{key.replace('_', '-')}: {refusal(name, key)}")
    try:
        return create(name, **settings.hyperparameters)
    except ValueError as error:
        raise UserError(f"{flag} {name}: {error}") from error
