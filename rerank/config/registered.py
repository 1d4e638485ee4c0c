"""The losses and the poolings: read from the package's source, and those that plug-ins and notebooks register."""

import sys

from rerank.utils.plugins import load_plugins
from rerank.utils.registry import PACKAGE, Hyperparameter, Registered, describe, registered


def describe_losses() -> dict[str, Registered]:
    """All losses by name: those of rerank/losses, and those registered since."""
    return _with_imported(registered(PACKAGE / "losses", "loss"), "rerank.losses", "LOSSES")


def describe_poolings() -> dict[str, Registered]:
    """All poolings by name: those of rerank/models/pooling.py, and those registered since."""
    return _with_imported(registered(PACKAGE / "models" / "pooling.py", "pooling"), "rerank.models.pooling", "POOLINGS")


def describe_hyperparameters() -> dict[str, dict[str, Hyperparameter]]:
    """The hyperparameters of all losses: for each name, the losses that have it.

    >>> describe_hyperparameters()["margin"]["hinge"].default
    1.0
    """
    losses: dict[str, dict[str, Hyperparameter]] = {}
    for loss in describe_losses().values():
        for key, hyperparameter in loss.hyperparameters.items():
            losses.setdefault(key, {})[loss.name] = hyperparameter
    return losses


def _with_imported(read: dict[str, Registered], module: str, register: str) -> dict[str, Registered]:
    """The functions that were read, and those of the module's register, if the module is imported."""
    load_plugins()
    functions = getattr(sys.modules.get(module), register, {})
    added = {name: describe(name, function) for name, function in functions.items() if name not in read}
    return dict(sorted((read | added).items()))
