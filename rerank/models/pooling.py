"""Poolings: functions from the scores of a document's passages to the score of the document."""

from collections.abc import Callable

import torch
from torch import Tensor

from rerank.utils.errors import UserError, nearest
from rerank.utils.registry import Registry

Pooling = Callable[[Tensor, Tensor], Tensor]
"""(passages,) scores and the number of each passage's document, (passages,) ascending from 0 -> (documents,) scores."""

POOLINGS: Registry[Pooling] = Registry("pooling")
"""The poolings by name, as in `--encoder.pooling`."""


def pooling(name: str) -> Callable[[Pooling], Pooling]:
    """Registers a pooling function under a name, which `--encoder.pooling` then accepts.

    >>> @pooling("last")
    ... def last(passage_scores, documents):
    ...     return passage_scores[documents.bincount().cumsum(0) - 1]
    >>> POOLINGS["last"](torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]))
    tensor([3., 5.])
    >>> del POOLINGS["last"]
    """

    def register(function: Pooling) -> Pooling:
        return POOLINGS.register(name, function)

    return register


def expect_pooling(name: str, pooling: str) -> None:
    """Raises UserError if the pooling that the model `name` was trained with is not registered."""
    if pooling not in POOLINGS:
        raise UserError(
            f"{name}: was trained with the pooling {pooling}, which is not registered; {nearest(pooling, POOLINGS)}"
        )


def check_pooling(pooling: str) -> None:
    """Raises UserError for a value of --encoder.pooling that is not registered."""
    if pooling not in POOLINGS:
        raise UserError(f"--encoder.pooling {pooling}: no such pooling; {nearest(pooling, POOLINGS)}")


def moves_with_scores(function: Pooling) -> bool:
    """Whether adding a constant to all passage scores adds it to all document scores.

    >>> moves_with_scores(POOLINGS["max"]), moves_with_scores(POOLINGS["sum"])
    (True, False)
    """
    scores, documents = torch.tensor([0.25, -0.5, 1.5]), torch.tensor([0, 0, 1])
    return torch.allclose(function(scores + 1, documents), function(scores, documents) + 1)


@pooling("mean")
def mean(passage_scores: Tensor, documents: Tensor) -> Tensor:
    """The mean of the passages' scores, as in CEDR (MacAvaney et al. 2019).

    >>> mean(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]))
    tensor([2., 5.])
    """
    return _scatter(passage_scores, documents, "mean")


@pooling("first")
def first(passage_scores: Tensor, documents: Tensor) -> Tensor:
    """The score of the first passage (FirstP, Dai and Callan 2019).

    >>> first(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]))
    tensor([1., 5.])
    """
    return passage_scores[documents.diff(prepend=torch.full_like(documents[:1], -1)) > 0]


@pooling("max")
def maximum(passage_scores: Tensor, documents: Tensor) -> Tensor:
    """The highest score of a passage (MaxP, Dai and Callan 2019).

    >>> maximum(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]))
    tensor([3., 5.])
    """
    return _scatter(passage_scores, documents, "amax")


@pooling("sum")
def total(passage_scores: Tensor, documents: Tensor) -> Tensor:
    """The sum of the passages' scores (SumP, Dai and Callan 2019).

    >>> total(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]))
    tensor([4., 5.])
    """
    return _scatter(passage_scores, documents, "sum")


@pooling("softmax")
def softmax(passage_scores: Tensor, documents: Tensor) -> Tensor:
    """The mean of the passages' scores, weighted by their softmax: a smooth maximum without parameters.

    >>> softmax(torch.tensor([0.0, 20.0, 5.0, 5.0]), torch.tensor([0, 0, 1, 1]))
    tensor([20.,  5.])
    """
    highest = _scatter(passage_scores.detach(), documents, "amax")  # subtracted against overflow
    weights = (passage_scores - highest[documents]).exp()
    return _scatter(weights * passage_scores, documents, "sum") / _scatter(weights, documents, "sum")


def _scatter(passage_scores: Tensor, documents: Tensor, reduction: str) -> Tensor:
    empty = passage_scores.new_zeros(int(documents[-1]) + 1)
    return empty.scatter_reduce(0, documents, passage_scores, reduction, include_self=False)
