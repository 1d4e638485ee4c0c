"""SmoothI's metrics and their gradient in one pass over the ranks, in the memory of a few (lists, documents) tensors.

With the stop-gradient the recursion p is a constant, so rank r adds c_r alpha p^r I^r (y - e_r) to the gradient of the
metric, where e_r = sum_j I_j^r y_j and c_r is the metric's derivative with respect to e_r. For P@K and NDCG, c_r is
known at rank r. For AP, c_r contains the sum of e_m / m over the ranks m >= r. It equals the total minus the sum before
r, and the total is known only at the end. So two gradients are summed, and the total multiplies the second one.

|p^r| is at most (1 - delta)^(r - 1). Once alpha S p is small, I = (1 + alpha (S p - mean S p)) / n up to second order,
and each rank multiplies p by 1 - delta - 1 / n: the sum over the remaining ranks has a closed form.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from rerank.losses.kernels.blocks import with_gradient
from rerank.losses.metrics import Metric, discount, highest, normaliser, ranks_like, summed_labels, unnormalised_metric

BLOCK = 2**18
"""Scores that are processed at once, in whole lists, so the tensors of a rank stay in the cache."""


def smoothi_metric(scores: Tensor, labels: Tensor, mask: Tensor, metric: Metric, alpha: float, delta: float) -> Tensor:
    """The metric of `rank_indicators` of the scores minus their minimum, (lists,), equal up to rounding.

    Scores, labels and mask are those of `prepare_inputs`, (lists, documents) each.
    """
    needs_gradient = torch.is_grad_enabled() and scores.requires_grad
    scores = scores.contiguous()
    values, gradient = torch.zeros_like(scores[:, 0]), torch.zeros_like(scores) if needs_gradient else None
    size = max(1, BLOCK // scores.shape[1])
    with torch.no_grad():
        for start in range(0, len(scores), size):
            lists = slice(start, start + size)
            into = None if gradient is None else gradient[lists]
            values[lists] = _one_pass(_Lists(scores[lists], labels[lists], mask[lists]), metric, alpha, delta, into)
    return with_gradient(scores, values, gradient)


class _Lists(NamedTuple):
    """The inputs of a loss, (lists, documents) each."""

    scores: Tensor
    labels: Tensor
    mask: Tensor


class _Ranks(NamedTuple):
    """The values of consecutive ranks, (lists, ranks) each.

    expected: the expected labels e.
    weights: the factors of the ranks in the metric's derivative, 0 beyond the documents.
    live: 1 on documents and 0 beyond them.
    seen: the sums of e over the ranks above.
    shares: the sums of e_m / m over the ranks above.
    """

    expected: Tensor
    weights: Tensor
    live: Tensor
    seen: Tensor
    shares: Tensor


def _one_pass(lists: _Lists, metric: Metric, alpha: float, delta: float, gradient: Tensor | None) -> Tensor:
    """The metric, (lists,); its gradient is added to `gradient`, which must be 0."""
    scores, labels, mask = lists
    y = summed_labels(labels, metric)
    top, best = highest(labels), normaliser(labels, metric)
    count = mask.sum(dim=1, keepdim=True).to(scores.dtype)
    lowest = scores.masked_fill(~mask, torch.inf).amin(dim=1, keepdim=True)
    scaled = alpha * (scores - lowest).masked_fill_(~mask, 0)
    ranks = ranks_like(scores, scores.shape[1])[: metric.cutoff]
    steps = min(len(ranks), _steps(scaled, delta))
    live = (ranks <= count).to(scores.dtype)
    # The factor of each rank in the metric's derivative.
    weights = {"p": torch.ones_like(ranks), "ap": 1 / ranks, "ndcg": math.log(2) * discount(ranks)}[metric.name] * live
    expected = torch.zeros_like(live)
    seen, shares = torch.zeros_like(lowest), torch.zeros_like(lowest)
    later = torch.zeros_like(scores) if gradient is not None and metric.name == "ap" else None

    # Padding has the logit -inf * p with p > 0, so its indicator is 0.
    scaled.masked_fill_(~mask, -torch.inf)
    p, row, term = torch.ones_like(scores), torch.empty_like(scores), torch.empty_like(scores)
    # Tensors, because on short lists a Python number costs as much as the operation itself.
    one, less = scores.new_tensor(1), scores.new_tensor(delta)
    columns = zip(*(grid[:, :steps].split(1, dim=1) for grid in (expected, weights, live)), strict=True)
    for e, weight, here in columns:
        torch.mul(scaled, p, out=term)
        torch.softmax(term, dim=1, out=row)
        torch.mul(row, y, out=term)
        torch.sum(term, dim=1, keepdim=True, out=e)
        if gradient is not None:
            term.addcmul_(row, e, value=-1).mul_(p)
            gradient.addcmul_(term, _slopes(_Ranks(e, weight, here, seen, shares), top, metric))
            if later is not None:
                later.addcmul_(term, here)
                seen.add_(e)
                shares.addcmul_(e, weight)
        # The order of operations is that of `rank_indicators`, because a large alpha magnifies their rounding.
        p.mul_(torch.sub(one, row, out=row).sub_(less))

    # The closed form of the remaining ranks.
    if steps < len(ranks):
        mean = y.sum(dim=1, keepdim=True) / count
        logits = scaled.masked_fill_(~mask, 0).mul_(p)
        covariance = ((logits - logits.sum(dim=1, keepdim=True) / count) * y).sum(dim=1, keepdim=True) / count
        shrunk = (1 - delta - 1 / count) ** (ranks[steps:] - ranks[steps])
        expected[:, steps:] = mean + shrunk * covariance
        if gradient is not None:
            e, weight, here = expected[:, steps:], weights[:, steps:], live[:, steps:]
            seen, shares = (terms.cumsum(dim=1)[:, steps - 1 : -1] for terms in (expected, expected * weights))
            slopes = _slopes(_Ranks(e, weight, here, seen, shares), top, metric)
            shrunk = shrunk * here
            p.mul_(y - mean).div_(count)
            gradient.addcmul_(p, (slopes * shrunk).sum(dim=1, keepdim=True))
            if later is not None:
                later.addcmul_(p, shrunk.sum(dim=1, keepdim=True))
    expected.mul_(live)

    if gradient is not None:
        if later is not None:
            gradient.addcmul_(later, (expected * weights).sum(dim=1, keepdim=True))
        gradient.mul_(alpha / best[:, None]).masked_fill_(~mask, 0)
        # The documents with the lowest score share the gradient of the shift: a sum over all documents, in float64.
        tied = (scores == lowest) & mask
        shift = gradient.sum(dim=1, keepdim=True, dtype=torch.float64) / tied.sum(dim=1, keepdim=True)
        gradient.sub_(tied * shift.to(scores.dtype))
    return unnormalised_metric(expected, top, metric) / best


def _steps(scaled: Tensor, delta: float) -> int:
    """The number of ranks after which the squared logits, summed over the remaining ranks, are below rounding."""
    peak = scaled.amax().item() if len(scaled) else 0.0
    if not math.isfinite(peak):
        return scaled.shape[1]
    least = math.sqrt(torch.finfo(scaled.dtype).eps * delta)
    # p itself must be as small, because the scores are no factor of the gradient.
    return math.ceil(math.log(max(peak, 1.0) / least) / -math.log1p(-delta))


def _slopes(ranks: _Ranks, top: Tensor, metric: Metric) -> Tensor:
    """c_r times the metric's `normaliser`; for AP without the total of e_m / m. `top`: each list's highest label."""
    e, weights, live, seen, shares = ranks
    if metric.name == "ndcg":
        return torch.exp2(e - top) * weights
    return weights if metric.name == "p" else (seen + e) * weights - shares * live
