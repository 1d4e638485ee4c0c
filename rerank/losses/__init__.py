"""Differentiable ranking losses and their operators. They do not depend on data, models or training.

Every loss takes scores, labels and a mask, each (lists, documents). The labels are graded relevance: 1 and above is
relevant for P@K and AP, below 0 counts as 0. A distillation loss takes a teacher's scores as labels. The mask is True
on real documents; masked entries may hold anything. A loss returns (lists,) values to be minimised. The value is 0 for
a list without a relevant document or with fewer than two documents; a pairwise loss also gives 0 without a pair. A loss
raises ValueError if the shapes differ or a hyperparameter is out of range. A loss optimises a *metric* (`ndcg@10`); an
evaluation reports a *measure* (`nDCG@20`).

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

from rerank.losses.distillation import adr_mse, distill_kl, margin_mse, rank_distil
from rerank.losses.indicators import neuralsort_indicators, rank_indicators, soft_permutation
from rerank.losses.inputs import prepare_inputs
from rerank.losses.listwise import listap, listmle, listnet, softmax
from rerank.losses.metrics import exact_metric
from rerank.losses.pairwise import hinge, pairwise_softmax, ranknet
from rerank.losses.pointwise import bce, mse
from rerank.losses.registry import LABELS, LOSSES, LossFunction, create, highest_grade, loss
from rerank.losses.smooth import approx, smoothi
from rerank.losses.soft_ranks import approx_soft_ranks, fast_soft_ranks
from rerank.losses.sorting import fastsort, neural_ndcg, neuralsort, ot, pirank, softsort
from rerank.losses.weighted_pairs import lambda_loss

__all__ = [
    "LABELS", "LOSSES", "adr_mse", "approx", "approx_soft_ranks", "bce", "create", "distill_kl", "exact_metric",
    "fast_soft_ranks", "fastsort", "highest_grade", "hinge", "lambda_loss", "listap", "listmle", "listnet", "loss",
    "margin_mse", "mse", "neural_ndcg", "neuralsort", "neuralsort_indicators", "ot", "pairwise_softmax", "pirank",
    "prepare_inputs", "rank_distil", "rank_indicators", "ranknet", "smoothi", "soft_permutation", "softmax", "softsort",
]  # fmt: skip


def __getattr__(name: str) -> LossFunction:
    """Returns a loss that another module registered, as in rerank.losses.my_loss."""
    if name in LOSSES:
        return LOSSES[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
