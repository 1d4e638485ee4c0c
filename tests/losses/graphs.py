"""The losses that are computed in blocks, as one graph of the public operators: what the blocks must reproduce."""

from collections.abc import Callable

import torch
from torch import Tensor

from rerank.losses import fast_soft_ranks, indicators, metrics, prepare_inputs
from rerank.losses.inputs import by_score, masked_softmax
from rerank.losses.soft_ranks import metric_from_soft_ranks


def metric_of(
    name: str, scores: Tensor, labels: Tensor, mask: Tensor, wanted: metrics.Metric, settings: dict
) -> Tensor:
    if name == "softsort":
        gaps = (scores.gather(1, by_score(scores, mask))[:, :, None] - scores[:, None, :]).abs()
        rows = masked_softmax(-gaps / settings.get("temperature", 1.0), mask[:, None, :])
        rows = rows.masked_fill((torch.arange(mask.shape[1]) >= mask.sum(dim=1)[:, None])[:, :, None], 0)
        return metrics.metric_from_indicators(rows, labels, wanted)
    if name == "smoothi":
        lowest = scores.masked_fill(~mask, torch.inf).amin(dim=1, keepdim=True)
        rows = indicators.rank_indicators(scores - lowest, mask, wanted.cutoff, **settings)
        return metrics.metric_from_indicators(rows, labels, wanted)
    if name in ("neuralsort", "pirank", "neural_ndcg"):
        rows = indicators.neuralsort_indicators(scores, mask, **settings)
        for dim in (1, 2) * indicators.SCALINGS if name == "neural_ndcg" else ():
            rows = rows / (rows.sum(dim=dim, keepdim=True) + (rows.sum(dim=dim, keepdim=True) == 0))
        if wanted.name != "ndcg" or name == "neuralsort":
            return metrics.metric_from_indicators(rows[:, : wanted.cutoff], labels, wanted)
        gains = (rows * metrics.gain(labels, metrics.highest(labels))[:, None]).sum(dim=2)
        return metrics.metric_from_ranked(gains, labels, wanted, gains=True)
    beta, cutoff_offset = settings.pop("beta", 10.0), settings.pop("cutoff_offset", 0.5)
    if name == "ot":
        plan = indicators.soft_permutation(scores, mask, **{"epsilon": 0.01, **settings})
        places = (plan * torch.arange(1, plan.shape[1] + 1)[:, None]).sum(dim=1)
    else:
        places = {"approx": soft_ranks, "fastsort": fast_soft_ranks}[name](scores, mask, **settings)
    if wanted.name != "ap":
        return metric_from_soft_ranks(places, labels, mask, wanted, beta, cutoff_offset)
    relevant = (labels >= 1) & mask
    places = places.masked_fill(~mask, 1)
    return (relevant / places * soft_ranks(-places, relevant, beta)).sum(dim=1) / relevant.sum(dim=1).clamp_min(1)


def soft_ranks(scores: Tensor, mask: Tensor, alpha: float = 1.0) -> Tensor:
    before = torch.sigmoid(alpha * (scores[:, None, :] - scores[:, :, None])).masked_fill(~mask[:, None, :], 0)
    return (0.5 + before.sum(dim=2)).masked_fill(~mask, 0)


def loss_of(name: str, scores: Tensor, labels: Tensor, mask: Tensor | None, metric: str = "ndcg", **settings) -> Tensor:
    scores, labels, mask, degenerate = prepare_inputs(scores, labels, mask)
    return (1 - metric_of(name, scores, labels, mask, metrics.parse(metric), settings)).masked_fill(degenerate, 0)


def ragged_lists(documents: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Seven lists of all lengths, NaN padding anywhere, ties in the second, nothing to learn in the third and last."""
    generator = torch.Generator().manual_seed(documents)
    scores = torch.randn(7, documents, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (7, documents), generator=generator)
    share = torch.tensor([1.0, 0.9, 0.8, 0.5, 0.3, 0.1, 0.0])
    mask = torch.rand(7, documents, generator=generator) < share[:, None]
    mask[1:5, documents // 2 :][:, :2] = True
    labels[1:5, documents // 2], labels[2] = 1, 0
    scores[1] = scores[1].round()
    return scores.to(dtype).masked_fill(~mask, torch.nan).requires_grad_(), labels, mask


def value_and_gradient(loss: Callable[..., Tensor], scores: Tensor, *arguments, **settings) -> tuple[Tensor, Tensor]:
    """The values and a gradient in which each list has a weight of its own, so that none lands on another list."""
    scores = scores.detach().clone().requires_grad_()
    values = loss(scores, *arguments, **settings)
    (gradient,) = torch.autograd.grad(values @ torch.arange(1, len(values) + 1).to(values.dtype), scores)
    return values.detach(), gradient
