"""Attention over packed (unpadded) sequences: passages are concatenated, and each attends only to itself.

The linear layers of an encoder then see real tokens only. transformers' AttentionInterface lets most encoders and
decoders call the attention function of this module, with the boundaries of the passages as an extra keyword.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rerank.models.product_attention import attend_by_products, fits_products

IMPLEMENTATION = "rerank_packed"

UNSUPPORTED = ("softcap", "s_aux", "sinks", "position_bias", "indices", "block_indices")
"""Keywords of transformers' attention interface that no packed kernel supports."""


class UnsupportedAttentionError(NotImplementedError):
    """The attention of a model needs more than the packed kernels compute."""


GPU_SHARE = 0.75
"""On a GPU, adjacent passages share a call of SDPA if the shortest has this share of the longest's tokens, or more.

The calls of a forward pass then grow with the logarithm of the lengths instead of their number, and at most 16 / 9 of
the products are those of padding.
"""

CPU_SHARE = 1.0
"""The same on a CPU: passages of equal length alone, as a call costs little there, and padding as much as tokens."""


class Bucket(NamedTuple):
    """Adjacent passages that share a call of SDPA, padded to `longest` tokens.

    tokens, passages: how many; real: (passages, longest), False on padding; places: (tokens,), where the tokens are in
    the flattened grid. Both are None if all passages have `longest` tokens.
    """

    tokens: int
    passages: int
    longest: int
    real: Tensor | None = None
    places: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Passages:
    """The boundaries of the passages of a forward pass.

    lengths: tokens of each; offsets: (passages + 1,) int32, passage p is tokens[offsets[p]:offsets[p + 1]]; longest:
    no passage has more tokens; flash: whether FlashAttention may be called, if there is a GPU and the precision is
    right (see `CrossEncoder.place`).
    """

    lengths: list[int]
    offsets: Tensor
    longest: int
    flash: bool = True

    @cached_property
    def buckets(self) -> list[Bucket]:
        """The passages as buckets, in their order; they are the same in every layer, so they are made once."""
        share = CPU_SHARE if self.offsets.device.type == "cpu" else GPU_SHARE
        return [_make_bucket(self, first, stop) for first, stop in bucket_bounds(self.lengths, share)]


def bucket_bounds(lengths: list[int], share: float) -> list[tuple[int, int]]:
    """The first and the last but one index of runs whose shortest length has at least this share of the longest.

    >>> bucket_bounds([400, 320, 290, 90, 100], 0.75)
    [(0, 2), (2, 3), (3, 5)]
    """
    bounds: list[tuple[int, int]] = []
    first, shortest, longest = 0, lengths[0], lengths[0]
    for index, length in enumerate(lengths):
        shortest, longest = min(shortest, length), max(longest, length)
        if shortest < share * longest:
            bounds.append((first, index))
            first, shortest, longest = index, length, length
    return [*bounds, (first, len(lengths))]


def _make_bucket(passages: Passages, first: int, stop: int) -> Bucket:
    """Passages first to stop - 1, without a copy between the devices."""
    lengths, offsets = passages.lengths[first:stop], passages.offsets[first : stop + 1]
    tokens, count, longest = sum(lengths), len(lengths), max(lengths)
    if tokens == count * longest:
        return Bucket(tokens, count, longest)
    longest = -(-longest // 8) * 8  # the kernels want rows of masks that are aligned
    sizes, device = offsets.diff(), offsets.device
    shifts = torch.arange(count, device=device) * longest - (offsets[:-1] - offsets[0])
    places = torch.arange(tokens, device=device) + torch.repeat_interleave(shifts, sizes, output_size=tokens)
    return Bucket(tokens, count, longest, torch.arange(longest, device=device) < sizes[:, None], places)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    passages: Passages | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Implements transformers' attention interface for packed passages; returns (1, tokens, heads, size).

    Query, key and value are (1, heads, tokens, size); keys and values may have fewer heads, each for as many successive
    heads of the queries. With a `sliding_window` of w, tokens attend to tokens less than w away. If the module is
    causal, they attend to earlier tokens and themselves alone. There is no attention dropout: no kernel here supports
    it. On CUDA in half precision, FlashAttention processes all passages in one call (of heads up to 256 wide), unless
    `passages` says otherwise; else adjacent passages share a call of SDPA: those of equal length on a CPU, those of
    similar length on a GPU. On a CPU in bf16, matrix products take the place of SDPA (see `attend_by_products`).
    Without `passages`, each row is a passage, (passages, heads, tokens, size), as when the encoder is used outside of
    this package. Raises UnsupportedAttentionError for a keyword of UNSUPPORTED.
    """
    for name in UNSUPPORTED:
        if others.get(name) is not None:
            raise UnsupportedAttentionError(f"its attention takes {name}")
    if key.shape[1] < query.shape[1]:
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in (key, value))
    causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
    before = -1 if sliding_window is None else sliding_window - 1
    window = (before, 0 if causal else before)
    if passages is None:
        if attention_mask is None:
            attended = _attend_rows(query, key, value, scaling, window)
        else:
            attended = F.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, scale=scaling)
        return attended.transpose(1, 2).contiguous(), None
    queries, keys, values = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))  # x[0] copies its gradient
    if passages.flash and _fits_flash(query, value):
        return _attend_any_lengths(queries, keys, values, passages, scaling, window)[None], None
    buckets = passages.buckets
    sizes = [bucket.tokens for bucket in buckets]
    # Splitting and concatenating once keeps the backward pass linear in the tokens, which slicing would not.
    parts = zip(queries.split(sizes), keys.split(sizes), values.split(sizes), strict=True)
    out = [_attend_bucket(*part, bucket, scaling, window) for part, bucket in zip(parts, buckets, strict=True)]
    return torch.cat(out)[None], None


def _fits_flash(query: Tensor, value: Tensor) -> bool:
    """Whether FlashAttention takes tensors of this device, type and size."""
    half = value.dtype in (torch.float16, torch.bfloat16)
    return value.is_cuda and half and query.shape[-1] == value.shape[-1] <= 256


Window = tuple[int, int]
"""How many tokens before and after itself a token attends to; -1: all. A causal token attends to none after it."""


def _window_mask(length: int, window: Window, device: torch.device) -> Tensor | None:
    """Mask of the tokens that may attend to each other, (length, length); None if no number of `window` limits them."""
    before, after = (length if side < 0 else side for side in window)
    if min(before, after) >= length - 1:
        return None
    positions = torch.arange(length, device=device)
    distances = positions[:, None] - positions
    return (distances <= before) & (-distances <= after)


def _attend_rows(query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: Window) -> Tensor:
    """Attention within rows of one length: (rows, heads, tokens, size) each."""
    length = query.shape[2]
    if window[1] == 0 and not 0 <= window[0] < length - 1:  # the kernels need no mask for plain causality
        return F.scaled_dot_product_attention(query, key, value, is_causal=length > 1, scale=scaling)
    mask = _window_mask(length, window, query.device)
    if mask is None and fits_products(value):
        query, key = query.to(value.dtype), key.to(value.dtype)  # rotary positions make them float32
        return attend_by_products(query, key, value, scaling)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)


def _attend_bucket(
    query: Tensor, key: Tensor, value: Tensor, bucket: Bucket, scaling: float | None, window: Window
) -> Tensor:
    """Attention within the passages of a bucket: query, key, value and result are (tokens, heads, size)."""
    if bucket.real is None or bucket.places is None:
        q, k, v = (
            x.reshape(bucket.passages, bucket.longest, *x.shape[1:]).transpose(1, 2) for x in (query, key, value)
        )
        return _attend_rows(q, k, v, scaling, window).transpose(1, 2).reshape(*query.shape[:2], value.shape[-1])
    q, k, v = (_to_grid(x, bucket, bucket.places) for x in (query, key, value))
    mask = bucket.real[:, None, None]
    near = _window_mask(bucket.longest, window, query.device)
    if near is not None:  # padding attends to everything, since a row without any key is not a number
        mask = (mask & near) | ~bucket.real[:, None, :, None]
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scaling)
    return out.transpose(1, 2).reshape(-1, query.shape[1], value.shape[-1]).index_select(0, bucket.places)


def _to_grid(x: Tensor, bucket: Bucket, places: Tensor) -> Tensor:
    """(tokens, heads, size) as (passages, heads, longest, size), 0 on padding."""
    grid = x.new_zeros(bucket.passages * bucket.longest, *x.shape[1:]).index_copy(0, places, x)
    return grid.view(bucket.passages, bucket.longest, *x.shape[1:]).transpose(1, 2)


def _attend_any_lengths(
    queries: Tensor, keys: Tensor, values: Tensor, passages: Passages, scaling: float | None, window: Window
) -> Tensor:
    from torch.nn.attention import varlen

    longest = passages.longest
    # Rotary positions make queries and keys float32, and autocast does not apply to the kernel.
    out = varlen.varlen_attn(
        queries.to(values.dtype), keys.to(values.dtype), values, passages.offsets, passages.offsets, longest, longest,
        scale=scaling, window_size=window,
    )  # fmt: skip
    return cast(Tensor, out)


def _mask(attention_mask: Tensor | None = None, **settings: Any) -> Tensor | None:
    """The mask function of the interface: packed passages have no `attention_mask` and need no mask."""
    from transformers.masking_utils import sdpa_mask

    mask: Tensor | None = None if attention_mask is None else sdpa_mask(attention_mask=attention_mask, **settings)
    return mask


def register_attention() -> None:
    """Makes `attend` known to transformers as the attention IMPLEMENTATION."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(IMPLEMENTATION, attend)
    AttentionMaskInterface.register(IMPLEMENTATION, _mask)
