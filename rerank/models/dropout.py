"""Deterministic dropout: the mask is a hash of the passage's seed, independent of batching.

A list's gradient therefore does not depend on the size of the micro-batches or the number of processes, and gradient
caching, which runs each passage twice, drops the same values both times.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

ODD = (-1640531527, 739982445, -1028477387)
"""Odd multipliers of an integer hash as int32: 2^32 / golden ratio, and two more."""


class DropoutKeys:
    """The int32 keys of one forward pass: of each token (`tokens`), and of each passage's first token (`firsts`)."""

    tokens: Tensor | None = None
    firsts: Tensor | None = None

    def checkpoint_contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """`context_fn` of torch.utils.checkpoint: what is recomputed has the keys of the forward pass it belongs to."""
        return contextlib.nullcontext(), self._with(self.tokens, self.firsts)

    @contextlib.contextmanager
    def _with(self, tokens: Tensor | None, firsts: Tensor | None) -> Iterator[None]:
        now = self.tokens, self.firsts
        self.tokens, self.firsts = tokens, firsts
        try:
            yield
        finally:
            self.tokens, self.firsts = now


class SeededDropout(nn.Module):
    """nn.Dropout whose mask is a hash of the token's key, the layer's number and the column; inactive in evaluation.

    It takes (…, tokens, hidden), (passages, 1, hidden), (passages, hidden), or attention weights (passages, heads,
    tokens, tokens). Values of no single passage (DeBERTa's relative positions) use the first passage's key. `drop`
    does the work; `rerank.models.triton_kernels` and `rerank.models.cpu.layers` have quicker ones, of the same result.
    """

    def __init__(self, p: float, number: int, keys: DropoutKeys) -> None:
        super().__init__()
        self.p = p
        self.keys = keys
        self.layer_key = number * ODD[1] % 2**31
        self.drop: Callable[[Tensor, Tensor, int, float], Tensor] = drop_by_operations

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        return self.drop(x, self.row_keys(x), self.layer_key, self.p)

    def row_keys(self, x: Tensor) -> Tensor:
        """The int32 keys of the rows of x."""
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


def seed_dropout(model: nn.Module) -> DropoutKeys:
    """Replaces every nn.Dropout of a model by a SeededDropout; returns the keys to set before a forward pass."""
    keys, number = DropoutKeys(), 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Dropout:
                number += 1
                setattr(module, name, SeededDropout(child.p, number, keys))
    return keys


def token_keys(seeds: Tensor, positions: Tensor) -> Tensor:
    """int32 keys of tokens, from their passage's seed (int64) and their position in it, all of one shape."""
    high = seeds >> 32
    return _hash((seeds ^ high * ODD[1]).to(torch.int32) * ODD[2] + positions.to(torch.int32) * ODD[0])


def _hash(bits: Tensor) -> Tensor:
    """A hash of int32 to 31 bits, never negative: a right shift copies the sign bit, which the last xor then clears."""
    bits = bits * ODD[0]
    shifted = bits >> 15
    bits.bitwise_xor_(shifted).mul_(ODD[1])
    return bits.bitwise_xor_(torch.bitwise_right_shift(bits, 12, out=shifted))


def hashes(x: Tensor, keys: Tensor, layer_key: int) -> tuple[Tensor, Tensor]:
    """The int32 hashes of the rows of x, as `keys`, and of its columns."""
    columns = torch.arange(x.shape[-1], dtype=torch.int32, device=x.device) * ODD[2]
    return _hash(keys + layer_key), _hash(columns)


def drop_by_operations(x: Tensor, keys: Tensor, layer_key: int, p: float) -> Tensor:
    """x, (…, columns), times 1 / (1 - p) where the hash of a row's key, `keys` (…) int32, keeps the column; else 0."""
    rows, columns = hashes(x, keys, layer_key)
    keep = _hash(torch.add(rows[..., None], columns)) >= int(p * 2**31)
    dropped: Tensor = _ApplyMask.apply(x, keep, p)
    return dropped


class _ApplyMask(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor, p: float) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.scale = 1 / (1 - p)
        return torch.where(keep, x, 0).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return torch.where(keep, grad, 0).mul_(ctx.scale), None, None
