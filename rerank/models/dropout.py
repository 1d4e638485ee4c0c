"""Dropout that follows from a passage's seed alone: whatever passages share its forward pass, the same values fall out.

So a list's gradient does not depend on how many tokens go through the encoder at a time, nor on the number of
processes, and scoring the same passage twice, without a graph and with one, drops the same values.
"""

from typing import Any

import torch
from torch import Tensor, nn

ODD = (-1640531527, 739982445, -1028477387)
"""Odd multipliers that spread bits (2^32 / golden ratio, and two of the kind that integer hashes use), as int32."""


class Keys:
    """The int32 keys of a forward pass that its dropouts share: of each token, and of each passage's first token."""

    tokens: Tensor | None = None
    firsts: Tensor | None = None


class SeededDropout(nn.Module):
    """nn.Dropout whose mask is a hash of (token's key, this layer's number, column); nothing in evaluation.

    It takes (…, tokens, hidden), (passages, 1, hidden), (passages, hidden), or attention weights (passages, heads,
    tokens, tokens). Of what belongs to no passage (DeBERTa's relative positions) the first passage's key decides. A
    Hugging Face attention may read its `p`, as it does of nn.Dropout.
    """

    def __init__(self, p: float, number: int, keys: Keys) -> None:
        super().__init__()
        self.p = p
        self.number = number
        self.keys = keys

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        dropped: Tensor = _Drop.apply(x, _keep(self._rows(x), self.number, x.shape[-1], self.p), self.p)
        return dropped

    def _rows(self, x: Tensor) -> Tensor:
        tokens, firsts = self.keys.tokens, self.keys.firsts
        if tokens is None or firsts is None:
            raise ValueError("training needs the seeds of the passages: Packed.seeds, (passages,) int64")
        if x.shape[:-1] == tokens.shape:
            return tokens
        if x.dim() == 4:
            heads = torch.arange(1, x.shape[1] + 1, dtype=torch.int32, device=x.device)
            return tokens[:, None] + heads[:, None] * ODD[2]
        if x.shape[:-1].numel() == len(firsts):
            return firsts.view(x.shape[:-1])
        rows = torch.arange(x.shape[:-1].numel(), dtype=torch.int32, device=x.device)
        return (rows * ODD[0] + firsts[0]).view(x.shape[:-1])


def seed_dropout(model: nn.Module) -> Keys:
    """Puts a SeededDropout in the place of every nn.Dropout of a model; returns what to give the keys to."""
    keys, number = Keys(), 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Dropout:
                number += 1
                setattr(module, name, SeededDropout(child.p, number, keys))
    return keys


def token_keys(seeds: Tensor, positions: Tensor) -> Tensor:
    """int32 keys of tokens from their passage's seed (int64) and their place in it, of one shape."""
    high = seeds >> 32
    return _mixed((seeds ^ high * ODD[1]).to(torch.int32) * ODD[2] + positions.to(torch.int32) * ODD[0])


def _keep(rows: Tensor, number: int, columns: int, p: float) -> Tensor:
    """Which values stay, each with probability 1 - p: (…, columns) for keys (…)."""
    rows = _mixed(rows + number * ODD[1] % 2**31)
    column = torch.arange(columns, dtype=torch.int32, device=rows.device) * ODD[2]
    hashed = torch.add(rows[..., None], _mixed(column))
    return _mixed(hashed) >= int(p * 2**31)


def _mixed(bits: Tensor) -> Tensor:
    """A hash of int32 to 31 bits, not negative: a shift to the right copies the sign, so the last xor clears it."""
    bits = bits * ODD[0]
    shifted = bits >> 15
    bits.bitwise_xor_(shifted).mul_(ODD[1])
    return bits.bitwise_xor_(torch.bitwise_right_shift(bits, 12, out=shifted))


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor, p: float) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.scale = 1 / (1 - p)
        return torch.where(keep, x, 0).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return torch.where(keep, grad, 0).mul_(ctx.scale), None, None
