"""Pointwise losses: the mean over the documents of a list of a function of one score and one label."""

import torch.nn.functional as F
from torch import Tensor

from rerank.losses.inputs import prepare_inputs
from rerank.losses.registry import loss


@loss("bce")
def bce(scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """Binary cross-entropy: the mean of −ln σ(S_i) over relevant documents and −ln(1 − σ(S_i)) over the others.

    A document is relevant from label 1 on. With binary labels it equals `BinaryCrossEntropyLoss` of
    sentence-transformers.

    Reference:
        Nogueira and Cho: Passage Re-ranking with BERT, 2019.

    >>> import torch
    >>> bce(torch.tensor([[0.0, 0.0]]), torch.tensor([[1, 0]]))
    tensor([0.6931])
    """
    scores, labels, mask, degenerate = prepare_inputs(scores, labels, mask)
    costs = F.binary_cross_entropy_with_logits(scores, (labels >= 1).to(scores.dtype), reduction="none")
    return _mean_over_documents(costs, mask, degenerate)


@loss("mse")
def mse(scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """Squared error: the mean of (S_i − y_i)². The score becomes an estimate of the label.

    Reference:
        Cossock and Zhang: Subset Ranking Using Regression, COLT 2006.

    >>> import torch
    >>> mse(torch.tensor([[1.0, 0.5]]), torch.tensor([[2, 0]]))
    tensor([0.6250])
    """
    scores, labels, mask, degenerate = prepare_inputs(scores, labels, mask)
    return _mean_over_documents((scores - labels).square(), mask, degenerate)


def _mean_over_documents(costs: Tensor, mask: Tensor, degenerate: Tensor) -> Tensor:
    """(lists,): the mean over the real documents; 0 for degenerate lists."""
    means = costs.masked_fill(~mask, 0).sum(dim=1) / mask.sum(dim=1).clamp_min(1)
    return means.masked_fill(degenerate, 0)
