"""The expected label at each rank by NeuralSort and by SoftSort, with its gradient, without the whole permutation.

NeuralSort: when documents are sorted by descending score, the logits of a rank rise up to the document at that rank and
fall after it, by the gap between two neighbours times 1, 3, 5, ... So the largest logit is known, and so is the band of
documents whose logits are near enough to it for exp not to vanish. The band is computed in tiles.

SoftSort takes O(documents log documents), as exp(-|S_r - S_j| / temperature) decays: the sum over the documents above
is a recursion, F_k = x_k + exp(-(S_(k-1) - S_k) / temperature) F_(k-1), whose factors are at most 1; a scan computes it
in log2(documents) steps.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from rerank.losses.inputs import by_score, tie_bounds

ROWS = 128
"""Ranks in a tile: with fewer, the band is narrower; with more, there are fewer calls."""

NEGLIGIBLE = 60.0
"""Logits that are lower than the largest one of their rank by more than this are ignored: exp(-60) is below 1e-26."""


def neuralsort_ranked(scores: Tensor, labels: Tensor, mask: Tensor, temperature: float, count: int) -> Tensor:
    """The expected label at each of `count` ranks, sum_j I_j^r y_j, for I of `indicators.neuralsort_indicators`.

    Scores and labels are (lists, documents), 0 on padding; the labels have no gradient, and no list is empty. Returns
    (lists, ranks), 0 beyond the number of documents. The gradient can be taken once.
    """
    ranked: Tensor = _NeuralSort.apply(scores, labels, mask, temperature, count)
    return ranked


def band_entries(documents: int) -> int:
    """The size of one list in `blocks.in_blocks`: two tiles, as all tiles are kept for the gradient."""
    return documents * min(documents, 2 * ROWS)


class _NeuralSort(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, labels: Tensor, mask: Tensor, temperature: float, count: int) -> Tensor:
        dtype = scores.dtype
        order = by_score(scores, mask)
        real, documents = mask.gather(1, order), mask.sum(dim=1, keepdim=True)
        # Only the differences of logits, which are much smaller than the logits, are rounded to the type of the scores.
        ranked = scores.gather(1, order).double()
        ranked = torch.where(real, ranked - ranked[:, :1], 0)
        index = torch.arange(scores.shape[1], device=scores.device)
        weights = (documents - 1 - 2 * index)[:, :count].double()
        peaks = torch.minimum(index, documents - 1)[:, :count]
        spread = _spread(ranked, real)
        columns = torch.stack([labels.gather(1, order), real.to(dtype)], dim=1)

        expected, tiles = [], []
        starts = range(0, weights.shape[1], ROWS)
        bands = _bands(ranked, spread, real, weights, peaks, NEGLIGIBLE * temperature)
        for start, (low, high) in zip(starts, bands, strict=True):
            weight, peak = weights[:, start : start + ROWS], peaks[:, start : start + ROWS]
            middle = weight.shape[1] // 2
            weight, centre = weight - weight[:, middle, None], weight[:, middle, None]
            # With w the weight of the tile's middle row: (w_r - w) S_j + (w S_j - spread_j), less the same at r's peak.
            base = centre * ranked - spread
            base = (base - base.gather(1, peak[:, middle, None])) / temperature
            place = (ranked - ranked.gather(1, peak[:, middle, None])) / temperature
            top = weight * place.gather(1, peak) + base.gather(1, peak)
            base = base.to(dtype).masked_fill(~real, torch.finfo(dtype).min / 4)[:, low:high]
            left = torch.stack([weight, -top, torch.ones_like(top)], dim=2).to(dtype)
            tile = left @ torch.stack([place[:, low:high].to(dtype), torch.ones_like(base), base], dim=1)
            # Clamped, as subnormal numbers (below 1e-38 in float32) make everything ten times slower.
            tile = tile.clamp_min_(-NEGLIGIBLE).exp_()
            total, mass = (columns[:, :, low:high] @ tile.mT).unbind(dim=1)
            expected.append(total / mass)
            if ctx.needs_input_grad[0]:
                tiles.append((low, high, weight, centre, mass, tile))
        ranked_labels = torch.cat(expected, dim=1).masked_fill_(index[:count] >= documents, 0)
        ctx.saved = order, real, ranked, columns[:, 0], ranked_labels, tiles, temperature
        return ranked_labels.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        order, real, ranked, y, expected, tiles, temperature = ctx.saved
        index = torch.arange(y.shape[1], device=y.device)
        documents = real.sum(dim=1, keepdim=True)
        first, last = tie_bounds(ranked)
        last = torch.minimum(last, documents - 1)
        # The derivative of the logit of rank r and document j is u_r exp_rj (y_j - e_r), with u the gradient over the
        # row's mass. A logit moves with S_j by w_r less the derivative of spread_j, which is about w_r: their
        # difference is summed.
        own = (documents - 1 - first - last).double()
        slope, moved = torch.zeros_like(ranked), torch.zeros_like(ranked)
        grad = grad.masked_fill(index[: grad.shape[1]] >= documents, 0)
        start = 0
        for low, high, weight, centre, mass, tile in tiles:
            rows, band = slice(start, start + tile.shape[1]), slice(low, high)
            start = rows.stop
            u = grad[:, rows] / mass
            sides = torch.stack([u, u * weight.to(u.dtype)], dim=1)
            sums = torch.cat([sides, sides * expected[:, None, rows]], dim=1) @ tile
            shares, tilts = (y[:, None, band] * sums[:, :2] - sums[:, 2:]).double().unbind(dim=1)
            moved[:, band] += shares
            slope[:, band] += tilts + (centre - own[:, band]) * shares
        # sum over k of sign(S_j - S_k) moved_k is what moves S_j through the spread of the others.
        above = moved.cumsum(dim=1)
        below = above[:, -1:] - above.gather(1, last)
        slope -= below - (above - moved).gather(1, first)
        slope = (slope / temperature).masked_fill_(~real, 0).to(grad.dtype)
        return torch.zeros_like(slope).scatter_(1, order, slope), None, None, None, None


def _spread(ranked: Tensor, real: Tensor) -> Tensor:
    """The sum over k of |S_j - S_k| for scores in descending order, 0 on padding: (lists, documents)."""
    above = ranked.cumsum(dim=1)
    index = torch.arange(ranked.shape[1], device=ranked.device)
    balance = real.sum(dim=1, keepdim=True) - 2 * (index + 1)
    return above + balance * ranked - (above[:, -1:] - above)


def _bands(
    ranked: Tensor, spread: Tensor, real: Tensor, weights: Tensor, peaks: Tensor, depth: float
) -> list[tuple[int, int]]:
    """For each tile of ROWS ranks the columns from the first to the last that is within `depth` of a row's peak.

    The first row of a tile reaches furthest up and the last one furthest down, as logits have a single peak.
    """

    def near(rows: Tensor) -> Tensor:
        logits = weights[:, rows, None] * ranked[:, None, :] - spread[:, None, :]
        deep = logits.gather(2, peaks[:, rows, None]) - depth
        return ((logits >= deep) & real[:, None, :]).any(dim=0).to(torch.uint8)

    count, documents = weights.shape[1], ranked.shape[1]
    starts = torch.arange(0, count, ROWS, device=ranked.device)
    lows = near(starts).argmax(dim=1)
    highs = documents - near((starts + ROWS - 1).clamp_max(count - 1)).flip(1).argmax(dim=1)
    return list(zip(lows.tolist(), highs.tolist(), strict=True))


def softsort_ranked(scores: Tensor, labels: Tensor, mask: Tensor, temperature: float, count: int) -> Tensor:
    """The expected label at each of `count` ranks, sum_j I_j^r y_j, for I^r = softmax_j(-|S_r - S_j| / temperature).

    Otherwise as `neuralsort_ranked`.
    """
    ranked: Tensor = _SoftSort.apply(scores, labels, mask, temperature, count)
    return ranked


class _SoftSort(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, labels: Tensor, mask: Tensor, temperature: float, count: int) -> Tensor:
        order = by_score(scores, mask)
        # In float64, as a scan rounds at every step; it is cheap.
        ranked, real = scores.gather(1, order).double(), mask.gather(1, order)
        decay = torch.exp((ranked[:, 1:] - ranked[:, :-1]) / temperature).masked_fill_(~real[:, 1:], 0)
        y = torch.stack([labels.gather(1, order).double(), real.double()])
        above, below = _sides(y, decay)
        total, weight = above + y + below
        weight = weight.masked_fill(~real, 1)
        expected: Tensor = total / weight
        ctx.save_for_backward(order, ranked, decay, y, above, below, expected, weight)
        ctx.temperature = temperature
        return expected[:, :count].to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        order, ranked, decay, y, above, below, expected, weight = ctx.saved_tensors
        share = torch.zeros_like(ranked)
        share[:, : grad.shape[1]] = grad
        share = share / weight * y[1]
        # The logit of rank r and document j has the derivative share_r kernel_rj (y_j - e_r). It is a function of
        # |S_r - S_j|, whose derivative is 0 if the two are equal.
        x = torch.stack([share, share * expected])
        upper, lower = _sides(x, decay)
        first, last = tie_bounds(ranked)
        signed = torch.cat([lower, below]).gather(2, last.expand(4, -1, -1))
        signed -= torch.cat([upper, above]).gather(2, first.expand(4, -1, -1))
        slope = y[0] * signed[0] - signed[1] + share * (signed[2] - expected * signed[3])
        slope = (slope * y[1] / -ctx.temperature).to(grad.dtype)
        return torch.zeros_like(slope).scatter_(1, order, slope), None, None, None, None


def _sides(x: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """The sums of x_m exp(-|S_m - S_k| / temperature) over m < k and over m > k, each (sums, lists, documents)."""
    return _before(x, decay), _before(x.flip(2), decay.flip(1)).flip(2)


def _before(x: Tensor, decay: Tensor) -> Tensor:
    """The sums over m < k of x_m decay_(m+1) ... decay_k, with decay (lists, documents - 1) between neighbours."""
    sums, factor, step = x.clone(), F.pad(decay, (1, 0)), 1
    while step < x.shape[2]:
        sums[:, :, step:] += factor[:, step:] * sums[:, :, :-step]
        factor[:, step:] = factor[:, step:] * factor[:, :-step]
        step *= 2
    return F.pad(sums[:, :, :-1] * decay, (1, 0))
