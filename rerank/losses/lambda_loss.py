"""LambdaLoss: the logistic pairwise loss, each pair weighted by what swapping it would do to a metric."""

import torch
import torch.nn.functional as F
from torch import Tensor

from rerank.losses.lists import by_score, prepared
from rerank.losses.metrics import Metric, discount, gain, ideal_dcg, parse, ranks_like


def lambda_loss(scores: Tensor, labels: Tensor, mask: Tensor | None = None, metric: str = "ndcg") -> Tensor:
    """The sum over pairs y_i > y_j of w_ij ln(1 + exp(S_j - S_i)), w constant (Wang et al. 2018, as TF-Ranking).

    With r the position by score (ties in order of appearance), D(r) = 1 / log2(1 + r), N the list's documents:
    - ndcg[@K]: w = N |G_i - G_j| |D(|r_i - r_j|) - D(|r_i - r_j| + 1)| if r_i <= K or r_j <= K, with
      G = (2^y - 1) / Z and Z the ideal DCG[@K]
    - p@K: w = 1 where exactly one of the two is relevant and exactly one stands within K
    - ap: w = the change of AP when the two swap positions (LambdaMART)

    Args:
        scores: (lists, documents).
        labels: (lists, documents), graded; 1 and above is relevant for P@K and AP.
        mask: (lists, documents), True on real documents; masked entries may hold anything.
        metric: p@K, ndcg@K, ndcg or ap.

    Returns:
        (lists,); 0 where a list has no relevant document or no pair.

    Raises:
        ValueError: the metric is none of these.
    """
    wanted = parse(metric)
    scores, labels, mask, idle = prepared(scores, labels, mask)
    order = by_score(scores, mask)
    scores, labels, mask = scores.gather(1, order), labels.gather(1, order), mask.gather(1, order)
    pairs = (labels[:, :, None] > labels[:, None, :]) & mask[:, :, None] & mask[:, None, :]
    cost = -F.logsigmoid(scores[:, :, None] - scores[:, None, :])
    return (_weights(labels, mask, wanted) * cost).masked_fill(~pairs, 0).sum(dim=(1, 2)).masked_fill(idle, 0)


def _weights(labels: Tensor, mask: Tensor, metric: Metric) -> Tensor:
    """The weight w of each pair of positions (lists, documents, documents), from the labels by descending score."""
    ranks = ranks_like(labels, labels.shape[1])
    relevant = labels >= 1
    within = ranks <= (metric.cutoff or len(ranks))
    if metric.name == "p":
        return ((relevant[:, :, None] ^ relevant[:, None, :]) & (within[:, None] ^ within)).to(labels.dtype)
    if metric.name == "ndcg":
        gains = gain(labels) / ideal_dcg(labels, metric.cutoff)[:, None]
        apart = (ranks[:, None] - ranks).abs().clamp_min(1)
        steps = (discount(apart) - discount(apart + 1)) * (within[:, None] | within)
        return mask.sum(dim=1)[:, None, None] * (gains[:, :, None] - gains[:, None, :]).abs() * steps
    return _ap_changes(relevant.to(labels.dtype), ranks)


def _ap_changes(relevant: Tensor, ranks: Tensor) -> Tensor:
    """|change of AP| when the documents at two positions swap, one of them relevant: (lists, ranks, ranks).

    With a < b the positions, c_r the relevant documents down to r and h_r = sum over k <= r of b_k / k, the document
    that moves to or from a changes the precision there, the one at b likewise, and every relevant document between
    them loses or gains 1 / k: (c_a - b_a + 1) / a - c_b / b + h_(b-1) - h_a.
    """
    found = relevant.cumsum(dim=1)
    inverse = (relevant / ranks).cumsum(dim=1)
    at_upper = (found - relevant + 1) / ranks - inverse
    at_lower = -found / ranks + inverse - relevant / ranks
    upper_first = at_upper[:, :, None] + at_lower[:, None, :]
    changes = torch.where(ranks[:, None] < ranks, upper_first, upper_first.mT)
    one_relevant = relevant[:, :, None] != relevant[:, None, :]
    return changes * one_relevant / found[:, -1:, None]
