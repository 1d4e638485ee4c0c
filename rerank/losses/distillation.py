"""Distillation losses: the labels are a teacher's scores, any finite numbers.

The student learns the teacher's scores up to a constant (margin_mse), their softmax (distill_kl), or only their order
(rank_distil, adr_mse).
"""

import torch
from torch import Tensor

from rerank.losses.inputs import check_positive, mask_inputs, masked_log_softmax, masked_softmax
from rerank.losses.metrics import discount
from rerank.losses.pairwise import ranknet
from rerank.losses.registry import loss
from rerank.losses.soft_ranks import approx_soft_ranks


@loss("margin_mse", labels="scores")
def margin_mse(scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """MarginMSE: the mean over pairs of ((S_i − S_j) − (y_i − y_j))², for a teacher's scores y.

    With d = S − y, the mean over the N (N − 1) / 2 pairs is 2 / (N − 1) Σ_i (d_i − mean(d))², which takes O(N) per
    list.

    Reference:
        Hofstätter, Althammer, Schröder, Sertkan and Hanbury: Improving Efficient Neural Ranking Models with
        Cross-Architecture Knowledge Distillation, 2020.

    >>> import torch
    >>> margin_mse(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[7.0, 9.0, 5.0]]))
    tensor([6.])
    """
    scores, labels, mask = mask_inputs(scores, labels, mask)
    count = mask.sum(dim=1)
    # Centring before the subtraction keeps precision when the means of scores and labels are far apart.
    gaps = _centred(scores, mask) - _centred(labels, mask)
    return 2 * gaps.square().sum(dim=1) / (count - 1).clamp_min(1)


@loss("distill_kl", labels="scores")
def distill_kl(scores: Tensor, labels: Tensor, mask: Tensor | None = None, temperature: float = 1.0) -> Tensor:
    """Listwise distillation: T² KL(softmax(y / T) ‖ softmax(S / T)), for a teacher's scores y.

    The factor T² keeps the size of the gradient when T changes. As T grows, the loss tends to (N − 1) / (4 N) times
    `margin_mse`.

    Args:
        temperature: T, above 0; a larger T gives more weight to documents with low teacher scores.

    Reference:
        Hinton, Vinyals and Dean: Distilling the Knowledge in a Neural Network, 2015. For ranking: Reddi et al.:
        RankDistil: Knowledge Distillation for Ranking, AISTATS 2021.

    >>> import torch
    >>> distill_kl(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[7.0, 9.0, 5.0]]))
    tensor([0.8651])
    """
    check_positive("temperature", temperature)
    scores, labels, mask = mask_inputs(scores, labels, mask)
    student, teacher = scores / temperature, labels / temperature
    gaps = masked_log_softmax(teacher, mask) - masked_log_softmax(student, mask)
    return temperature**2 * (masked_softmax(teacher, mask) * gaps).sum(dim=1)


@loss("rank_distil", labels="scores")
def rank_distil(scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """RankNet on a teacher's order: the mean of ln(1 + exp(S_j − S_i)) over the pairs with y_i > y_j.

    The loss depends only on the order of the teacher's scores, not on their scale.

    Reference:
        Schlatt et al.: Rank-DistiLLM: Closing the Effectiveness Gap Between Cross-Encoders and LLMs for Passage
        Re-Ranking, ECIR 2025.

    >>> import torch
    >>> rank_distil(torch.tensor([[2.0, 1.0]]), torch.tensor([[-3.0, -7.0]]))
    tensor([0.3133])
    """
    _, labels, mask = mask_inputs(scores, labels, mask)
    return ranknet(scores, _documents_below(labels, mask), mask)


@loss("adr_mse", labels="scores")
def adr_mse(scores: Tensor, labels: Tensor, mask: Tensor | None = None, alpha: float = 1.0) -> Tensor:
    """ADR-MSE: the mean over documents of (π_i − r_i)² / log2(1 + r_i), where r is the rank by teacher score.

    π_i = 1 + Σ_{j≠i} σ(α (S_j − S_i)) are the soft ranks of `approx`. Documents with equal teacher scores get the mean
    of their ranks.

    Args:
        alpha: inverse temperature of the soft ranks, above 0.

    Reference:
        Schlatt et al.: Rank-DistiLLM, ECIR 2025 (approximate discounted rank MSE).

    >>> import torch
    >>> adr_mse(torch.tensor([[9.0, 0.0, -9.0]]), torch.tensor([[3.0, 2.0, 1.0]]), alpha=10.0)
    tensor([0.])
    """
    check_positive("alpha", alpha)
    scores, labels, mask = mask_inputs(scores, labels, mask)
    count = mask.sum(dim=1, keepdim=True)
    ranks = (count - _documents_below(labels, mask)).masked_fill(~mask, 1)
    errors = (approx_soft_ranks(scores, mask, alpha) - ranks).square() * discount(ranks)
    return errors.masked_fill(~mask, 0).sum(dim=1) / count[:, 0].clamp_min(1)


def _documents_below(labels: Tensor, mask: Tensor) -> Tensor:
    """The number of real documents with a lower label, plus half of those with an equal one: (lists, documents)."""
    ascending = labels.masked_fill(~mask, torch.inf).sort(dim=1).values
    labels = labels.contiguous()
    lower, not_higher = torch.searchsorted(ascending, labels), torch.searchsorted(ascending, labels, right=True)
    return (0.5 * (lower + not_higher - 1).to(labels.dtype)).masked_fill(~mask, 0)  # without the document itself


def _centred(values: Tensor, mask: Tensor) -> Tensor:
    """The differences from the mean over the real documents; 0 on padding."""
    means = values.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp_min(1)
    return (values - means).masked_fill(~mask, 0)
