"""The register of losses: `@loss("name")` adds a function to LOSSES, `create` makes a loss from its name."""

import difflib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from rerank.utils.registry import TYPES, describe

LossFunction = Callable[..., Tensor]
"""(scores, labels, mask=None, **hyperparameters) -> (lists,)."""

LOSSES: dict[str, LossFunction] = {}
"""The registered losses by name."""

Labels = Literal["judgments", "scores"]
"""What the labels of a loss are: graded relevance, 0 and above, or a teacher's scores, any finite numbers."""

LABELS: dict[str, Labels] = {}
"""The labels that each registered loss takes, by its name."""

Function = TypeVar("Function", bound=LossFunction)


def loss(name: str, labels: Labels = "judgments") -> Callable[[Function], Function]:
    """Registers a loss: a function of scores, labels, mask=None and hyperparameters that returns one value per list.

    A hyperparameter is a float, int, bool or str with a default. The command line has a flag --loss.KEY for each.

    Args:
        name: what `--loss` and `create` call it.
        labels: what its labels are; those of a loss for distillation are a teacher's "scores".

    Raises:
        TypeError: the parameters of the function are not as above.
        ValueError: another function has this name.
    """

    def register(function: Function) -> Function:
        signature, described = inspect.signature(function), describe(name, function).hyperparameters
        flags = [key for key, found in described.items() if found.default is not inspect.Parameter.empty]
        if list(signature.parameters) != ["scores", "labels", "mask", *flags]:
            raise TypeError(
                f"loss {name!r}: expected the parameters scores, labels, mask=None, and hyperparameters with a "
                f"default and one of the types {', '.join(TYPES)}, got {signature}"
            )
        other = LOSSES.get(name, function)
        if (other.__module__, other.__qualname__) != (function.__module__, function.__qualname__):
            raise ValueError(f"loss {name!r} is registered already, by {other.__module__}.{other.__qualname__}")
        LOSSES[name], LABELS[name] = function, labels
        return function

    return register


def create(name: str, **hyperparameters: Any) -> Callable[..., Tensor]:
    """Returns the loss (scores, labels, mask=None) -> (lists,) with these hyperparameters, after checking them.

    Args:
        name: a name in LOSSES.
        hyperparameters: those that differ from the defaults.

    Raises:
        ValueError: there is no such loss or hyperparameter, or a value has the wrong type or is out of range.

    >>> loss = create("approx", metric="ap", alpha=10)
    >>> create("hinge", alpha=10)
    Traceback (most recent call last):
    ValueError: hinge: has no hyperparameter alpha; it takes margin, pairs
    """
    if name not in LOSSES:
        close = difflib.get_close_matches(name, LOSSES, n=1)
        hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(sorted(LOSSES))}"
        raise ValueError(f"{name}: no such loss; {hint}")
    expected = describe(name, LOSSES[name]).hyperparameters
    for key, value in hyperparameters.items():
        if key not in expected:
            raise ValueError(f"{name}: has no hyperparameter {key}; it takes {', '.join(expected) or 'none'}")
        kind = expected[key].type
        fits = isinstance(value, (int, float) if kind is float else kind)
        if not fits or isinstance(value, bool) != (kind is bool):  # an int is a float, but a bool is no number
            raise ValueError(f"{name}: {key}: expected {kind.__name__}, got {value!r}")
    created = partial(LOSSES[name], **hyperparameters)
    try:
        created(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]]))
    except ValueError as error:  # a value that is out of range
        raise ValueError(f"{name}: {error}") from None
    return created
