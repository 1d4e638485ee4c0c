"""The registry of losses: `@loss("name")` adds a function to LOSSES, `create` makes a loss from its name."""

import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, TypeVar

import torch
from torch import Tensor

from rerank.utils.registry import SETTING_TYPES, Registry, Setting, hyperparameters

LossFunction = Callable[..., Tensor]
"""(scores, labels, mask=None, **hyperparameters) -> (lists,)."""

LOSSES: Registry[LossFunction] = Registry("loss")
"""The registered losses by name."""

Labels = Literal["judgments", "scores"]
"""The labels of a loss: graded relevance, 0 and above, or a teacher's scores, any finite numbers."""

LABELS: dict[str, Labels] = {}
"""Name of a registered loss -> the labels that it takes."""

HIGHEST_GRADE = 2**24
"""The highest grade of any loss: float32, the type of labels, has no whole numbers side by side above it."""

EXPECTED_GAIN: set[str] = set()
"""The losses whose NDCG has the gain 2^e − 1 of an expected label e."""

HIGHEST_EXPECTED = 10
"""The highest grade of these: at equal scores its gradient is 1 % of that of grade 1, and halves with each more."""

Function = TypeVar("Function", bound=LossFunction)


def loss(name: str, labels: Labels = "judgments", expected_gain: bool = False) -> Callable[[Function], Function]:
    """Registers a loss: a function of scores, labels, mask=None and hyperparameters that returns one value per list.

    A hyperparameter is a float, int, bool or str with a default, which `--loss.KEY` sets.

    Args:
        name: the name for `--loss` and `create`.
        labels: "judgments", or "scores" for a distillation loss, whose labels are a teacher's scores.
        expected_gain: whether it is one of EXPECTED_GAIN.

    Raises:
        TypeError: the parameters of the function are not as above.
        ValueError: another function has this name.

    >>> @loss("gaps")
    ... def gaps(scores: Tensor, labels: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
    ...     return scale * (scores - labels).abs().sum(dim=1)
    >>> create("gaps", scale=2.0)(torch.tensor([[0.5, 0.0]]), torch.tensor([[1, 0]]))
    tensor([1.])
    >>> del LOSSES["gaps"], LABELS["gaps"]  # the example leaves the registry as it was
    """

    def register(function: Function) -> Function:
        signature = inspect.signature(function)
        if list(signature.parameters) != ["scores", "labels", "mask", *hyperparameters(function)]:
            raise TypeError(
                f"loss {name!r}: expected the parameters scores, labels, mask=None, and hyperparameters with a "
                f"default and one of the types {', '.join(SETTING_TYPES)}, got {signature}"
            )
        LOSSES.register(name, function)
        LABELS[name] = labels
        (EXPECTED_GAIN.add if expected_gain else EXPECTED_GAIN.discard)(name)
        return function

    return register


def create(name: str, **given: Setting) -> LossFunction:
    """Returns the loss (scores, labels, mask=None) -> (lists,) with these hyperparameters, after checking them.

    Args:
        name: a name in LOSSES.
        given: the hyperparameters that differ from the defaults.

    Raises:
        ValueError: there is no such loss or hyperparameter, or a value has the wrong type or is out of range.

    >>> create("hinge", margin=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0, 1, 0]]))
    tensor([0.7500])
    >>> create("hinge", alpha=10)
    Traceback (most recent call last):
    ValueError: hinge: has no hyperparameter alpha; it takes margin, pairs
    """
    function = LOSSES.find(name)
    defaults = hyperparameters(function)
    for key, value in given.items():
        if key not in defaults:
            raise ValueError(f"{name}: has no hyperparameter {key}; it takes {', '.join(defaults) or 'none'}")
        kind = type(defaults[key])
        fits = isinstance(value, (int, float) if kind is float else kind)
        if not fits or isinstance(value, bool) != (kind is bool):  # an int is a float, but a bool is no number
            raise ValueError(f"{name}: {key}: expected {kind.__name__}, got {value!r}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name}: {key}: expected a finite number, got {value}")
    created = partial(function, **given)
    try:
        created(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]]))
    except ValueError as error:  # a value that is out of range
        raise ValueError(f"{name}: {error}") from None
    except OverflowError as error:
        raise ValueError(f"{name}: got {given}: too large or too small to compute with ({error})") from None
    return created


def highest_grade(name: str, given: Mapping[str, Setting] = {}) -> int:
    """The highest grade that a loss with these hyperparameters learns from.

    >>> highest_grade("neuralsort"), highest_grade("neuralsort", {"metric": "ap"})
    (10, 16777216)
    """
    metric = str({**hyperparameters(LOSSES.find(name)), **given}.get("metric", ""))
    return HIGHEST_EXPECTED if name in EXPECTED_GAIN and metric.lower().startswith("ndcg") else HIGHEST_GRADE
