"""Short passages that a model is tried with, and the difference of what it computes for them in two ways."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from rerank.batches.batch import Packed

PROBE_LENGTHS = (160, 33, 7)
"""Tokens of the passages; the longest has more than the attention windows of known encoders."""

TOLERANCE = 1e-3
"""The largest relative difference of values in float32 that are computed in another way; rounding gives about 1e-5."""


def probe_passages(pad_id: int, vocab_size: int, most: int, lengths: Sequence[int]) -> Packed:
    """Passages of these lengths, `most` tokens at most, of one document; no token is padding."""
    lengths = [min(length, most) for length in lengths]
    places = torch.cat([torch.arange(length) for length in lengths])
    ids = (places % min(50, vocab_size - 1) + pad_id + 1) % vocab_size
    offsets = torch.tensor([0, *accumulate(lengths)])
    return Packed(ids, None, offsets, torch.zeros(len(lengths), dtype=torch.int64))


def relative_difference(expected: Tensor, found: Tensor) -> float:
    """The largest difference relative to the largest value of the first one."""
    if expected.shape != found.shape:
        return math.inf
    return float((expected - found).abs().max() / expected.abs().max().clamp_min(1e-6))


@contextlib.contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Within the block the model is in this mode, and afterwards in the one that it was in."""
    before = model.training
    model.train(training)
    try:
        yield
    finally:
        model.train(before)
