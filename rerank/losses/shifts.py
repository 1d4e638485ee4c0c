"""Whether a loss changes with a constant that is added to all scores of a list."""

import torch

from rerank.losses.registry import LossFunction

SHIFT = 2.5
"""Added to scores of about 1."""
TOLERANCE = 1e-5
"""Of a loss of about 1: losses that compute in float32 round by 1e-7."""


def changes_with_a_shift(loss: LossFunction) -> bool:
    """Whether the loss of two small lists changes if a constant is added to their scores.

    A bias that moves all scores alike has the gradient 0 under a loss that does not change.

    >>> from rerank.losses import create
    >>> changes_with_a_shift(create("hinge"))
    False
    """
    scores = torch.tensor([[0.3, -1.2, 0.8, 0.1], [1.1, 0.4, -0.6, 0.0]], dtype=torch.float64)
    labels = torch.tensor([[1.0, 0.0, 2.0, 0.0], [0.0, 1.0, 0.0, 1.0]], dtype=torch.float64)
    difference = loss(scores + SHIFT, labels) - loss(scores, labels)
    return bool((difference.abs() > TOLERANCE).any())
