"""Tests whether a loss changes when a constant is added to all scores of a list."""

import torch

from rerank.losses.registry import LossFunction

SHIFT = 2.5
"""The constant that is added to scores of about 1."""
TOLERANCE = 1e-5
"""Largest change of a loss of about 1 that counts as rounding; float32 rounds by 1e-7."""


def changes_with_a_shift(loss: LossFunction) -> bool:
    """Whether the loss of two small lists changes if a constant is added to their scores.

    A bias added to all scores has gradient 0 under a loss that does not change.

    >>> from rerank.losses import create
    >>> changes_with_a_shift(create("hinge"))
    False
    """
    scores = torch.tensor([[0.3, -1.2, 0.8, 0.1], [1.1, 0.4, -0.6, 0.0]], dtype=torch.float64)
    labels = torch.tensor([[1.0, 0.0, 2.0, 0.0], [0.0, 1.0, 0.0, 1.0]], dtype=torch.float64)
    difference = loss(scores + SHIFT, labels) - loss(scores, labels)
    return bool((difference.abs() > TOLERANCE).any())
