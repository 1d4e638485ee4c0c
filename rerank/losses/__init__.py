"""Differentiable ranking losses, and the operators they are made of. Knows nothing of data, models or training.

A loss takes scores and labels, each (lists, documents), and a mask that is True on real documents; it returns one value
per list, to be minimised. A *metric* (`ndcg@10`) is what a loss optimises, a *measure* (`nDCG@20`) what is evaluated.

    >>> import torch
    >>> from rerank.losses import create, smoothi
    >>> scores = torch.tensor([[0.2, 1.5, -0.3], [1.0, 0.5, torch.nan]], requires_grad=True)
    >>> labels = torch.tensor([[0, 1, 0], [1, 2, 0]])
    >>> smoothi(scores[:1], labels[:1], metric="ndcg@2", alpha=100.0).item()
    0.0
    >>> mask = torch.tensor([[True, True, True], [True, True, False]])
    >>> create("hinge", margin=0.5)(scores, labels, mask).sum().backward()  # no gradient for masked documents
    >>> scores.grad
    tensor([[ 0.,  0.,  0.],
            [ 1., -1.,  0.]])
"""

import importlib
import pkgutil

from rerank.losses.indicators import neuralsort_indicators, rank_indicators, soft_permutation, softsort_indicators
from rerank.losses.metrics import exact_metric
from rerank.losses.registry import LABELS, LOSSES, LossFunction, create, loss
from rerank.losses.soft_ranks import approx_soft_ranks, fast_soft_ranks

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
globals().update(LOSSES)  # each loss is an attribute, as in rerank.losses.smoothi; `lambda_loss` hides its module


def __getattr__(name: str) -> LossFunction:
    if name in LOSSES:  # registered after the import
        return LOSSES[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["LABELS", "LOSSES", "approx_soft_ranks", "create", "exact_metric", "fast_soft_ranks", "loss"]
__all__ += ["neuralsort_indicators", "rank_indicators", "soft_permutation", "softsort_indicators"]
__all__.extend(LOSSES)
