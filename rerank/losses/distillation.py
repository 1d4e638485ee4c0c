"""Distillation losses: the labels are a teacher's scores, and the student learns their differences or their softmax."""

from torch import Tensor

from rerank.losses.inputs import check_positive, mask_teacher, masked_log_softmax, masked_softmax
from rerank.losses.registry import loss


@loss("margin_mse", labels="scores")
def margin_mse(scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """MarginMSE: the mean over pairs of ((S_i − S_j) − (y_i − y_j))², for a teacher's scores y.

    With d = S − y the mean over the N (N − 1) / 2 pairs is 2 / (N − 1) Σ_i (d_i − mean(d))²: it takes O(N) per list.

    Reference:
        Hofstätter, Althammer, Schröder, Sertkan and Hanbury: Improving Efficient Neural Ranking Models with
        Cross-Architecture Knowledge Distillation, 2020.
    """
    scores, labels, mask = mask_teacher(scores, labels, mask)
    count = mask.sum(dim=1)
    # Each is centred before they are subtracted: scores and labels may be far from each other.
    gaps = _centred(scores, mask) - _centred(labels, mask)
    return 2 * gaps.square().sum(dim=1) / (count - 1).clamp_min(1)


@loss("distill_kl", labels="scores")
def distill_kl(scores: Tensor, labels: Tensor, mask: Tensor | None = None, temperature: float = 1.0) -> Tensor:
    """Listwise distillation: T² KL(softmax(y / T) ‖ softmax(S / T)), for a teacher's scores y.

    The factor T² keeps the size of the gradient when T changes. As T grows, the loss tends to (N − 1) / (4 N) times
    `margin_mse`.

    Args:
        temperature: T, above 0; the softmax of a large T gives weight to the documents that the teacher scores low.

    Reference:
        Hinton, Vinyals and Dean: Distilling the Knowledge in a Neural Network, 2015. For ranking: Reddi et al.:
        RankDistil: Knowledge Distillation for Ranking, AISTATS 2021.
    """
    check_positive("temperature", temperature)
    scores, labels, mask = mask_teacher(scores, labels, mask)
    student, teacher = scores / temperature, labels / temperature
    gaps = masked_log_softmax(teacher, mask) - masked_log_softmax(student, mask)
    return temperature**2 * (masked_softmax(teacher, mask) * gaps).sum(dim=1)


def _centred(values: Tensor, mask: Tensor) -> Tensor:
    """The differences from the mean over the real documents; 0 on padding."""
    means = values.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp_min(1)
    return (values - means).masked_fill(~mask, 0)
