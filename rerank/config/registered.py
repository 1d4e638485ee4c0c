"""The losses and the poolings: read from the package's source, and those that plug-ins and notebooks register."""

import sys
from typing import Any, Union

from rerank.utils.parameters import Whole
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


def hyperparameter_types() -> dict[str, Any]:
    """The type of each hyperparameter of any loss; None stands for the default of the loss."""
    return {
        key: Union[*(Whole if of_loss.type is int else of_loss.type for of_loss in losses.values()), None]
        for key, losses in describe_hyperparameters().items()
    }


def registered_helps() -> dict[str, dict[str, str]]:
    """Section -> key -> help of the settings that choose what is registered, or are read from it."""
    hyperparameters = {key: _help(losses) for key, losses in describe_hyperparameters().items()}
    poolings = ", ".join(describe_poolings())
    return {
        "loss": {"name": f"One of {', '.join(describe_losses())}.", **hyperparameters},
        "encoder": {"pooling": f"How the scores of a document's passages become its score: one of {poolings}."},
    }


def _help(losses: dict[str, Hyperparameter]) -> str:
    description = next((of_loss.description for of_loss in losses.values() if of_loss.description), "")
    first, _, rest = description.partition(" ")
    description = f"{first.capitalize() if first.isalpha() else first} {rest}"  # p@K and l2 are values
    names: dict[str, list[str]] = {}
    for name, of_loss in losses.items():
        names.setdefault(str(of_loss.default), []).append(name)
    defaults = "; ".join(f"{', '.join(of_value)}: {value}" for value, of_value in names.items())
    return f"{description} [default of {defaults}]"


def _with_imported(read: dict[str, Registered], module: str, register: str) -> dict[str, Registered]:
    """The functions that were read, and those of the module's register, if the module is imported."""
    load_plugins()
    functions = getattr(sys.modules.get(module), register, {})
    added = {name: describe(name, function) for name, function in functions.items() if name not in read}
    return dict(sorted((read | added).items()))
