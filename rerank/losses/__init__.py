"""Differentiable ranking losses: loss(scores, labels, mask=None, **hyperparameters) -> one value a list.

Scores and labels are (lists, documents), mask is True on real documents. The value is to be minimised; nothing is
reduced over lists. It has the scores' type, but never below float32. Masked entries may hold anything, NaN included. A
list with no relevant document (label 1 or more), with one document or with none has the value 0 and a zero gradient.

    >>> import torch
    >>> from rerank.losses import smoothi
    >>> scores = torch.tensor([[0.2, 1.5, -0.3], [1.0, 0.5, 0.0]], requires_grad=True)
    >>> smoothi(scores, torch.tensor([[0, 1, 0], [0, 0, 0]]), metric="ndcg@2", alpha=100.0)
    tensor([0., 0.], grad_fn=<MaskedFillBackward0>)

The losses are exported here and listed in LOSSES under the names that the command line takes. The operators behind them
live in `rerank.losses.indicators` and `rerank.losses.soft_ranks`. Two of them share their name with their loss: as
`rerank.losses.neuralsort` and `rerank.losses.softsort` are the losses, the operators `indicators.neuralsort` and
`indicators.softsort` are exported here as `neuralsort_indicators` and `softsort_indicators`.
"""

from collections.abc import Callable

from torch import Tensor

from rerank.losses.extras import knn, soft_positions, soft_ranking, soft_sort
from rerank.losses.indicators import neuralsort as neuralsort_indicators
from rerank.losses.indicators import rank_indicators, soft_permutation
from rerank.losses.indicators import softsort as softsort_indicators
from rerank.losses.lambda_loss import lambda_loss
from rerank.losses.listwise import listap, listmle, listnet, softmax
from rerank.losses.metrics import exact
from rerank.losses.pairwise import hinge, pairwise_softmax, ranknet
from rerank.losses.smooth import approx, fastsort, neuralsort, ot, smoothi, softsort
from rerank.losses.soft_ranks import approx_positions, fast_positions

LOSSES: dict[str, Callable[..., Tensor]] = {
    "smoothi": smoothi,
    "approx": approx,
    "neuralsort": neuralsort,
    "softsort": softsort,
    "fastsort": fastsort,
    "ot": ot,
    "listnet": listnet,
    "listmle": listmle,
    "listap": listap,
    "lambda_loss": lambda_loss,
    "hinge": hinge,
    "ranknet": ranknet,
    "softmax": softmax,
    "pairwise_softmax": pairwise_softmax,
}

__all__ = [
    "LOSSES",
    "approx",
    "approx_positions",
    "exact",
    "fast_positions",
    "fastsort",
    "hinge",
    "knn",
    "lambda_loss",
    "listap",
    "listmle",
    "listnet",
    "neuralsort",
    "neuralsort_indicators",
    "ot",
    "pairwise_softmax",
    "rank_indicators",
    "ranknet",
    "smoothi",
    "soft_permutation",
    "soft_positions",
    "soft_ranking",
    "soft_sort",
    "softmax",
    "softsort",
    "softsort_indicators",
]
