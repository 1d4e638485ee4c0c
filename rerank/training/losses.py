"""The loss of an experiment, made from its settings."""

from rerank.config import LossSettings
from rerank.losses import create
from rerank.training.gradients import Loss
from rerank.utils.errors import UserError
from rerank.utils.plugins import load_plugins


def open_loss(settings: LossSettings, flag: str = "--loss") -> Loss:
    """Returns the loss of these settings; `flag` names it in messages.

    Raises UserError if there is no such loss or hyperparameter, or a value is out of range.
    """
    load_plugins()
    try:
        return create(settings.name, **settings.hyperparameters)
    except ValueError as error:
        raise UserError(f"{flag} {error}") from error
