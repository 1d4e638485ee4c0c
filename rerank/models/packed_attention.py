"""Attention over packed passages: passages follow one another without padding, and each attends only to itself.

So the linear layers of an encoder process no padding. Most encoders and decoders call `attend` through transformers'
AttentionInterface; it gets the boundaries of the passages as an extra keyword of the forward pass.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypedDict, Unpack, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

IMPLEMENTATION = "rerank_packed"

UNSUPPORTED = ("softcap", "s_aux", "sinks", "position_bias", "indices", "block_indices")
"""Keywords of transformers' attention interface that `attend` does not compute."""

SHARES = {"cpu": 1.0}
"""By device: adjacent passages share a call of SDPA if the shortest has at least this share of the longest's tokens.

On a CPU a call is cheap, and padding costs as much as tokens.
"""

GPU_SHARE = 0.75
"""The same share for GPUs, where a call is expensive."""

LONGEST_BY_PRODUCTS = 1024
"""Tokens of the longest passage whose attention in bf16 on a CPU is two plain products, faster there than SDPA.

The memory of the weights of attention grows with the square of the tokens.
"""

Window = tuple[int, int]
"""How many tokens before and after itself a token attends to; -1: all. Causal attention has 0 after."""


class UnsupportedAttentionError(NotImplementedError):
    """The attention of a model needs more than `attend` computes."""


class Bucket(NamedTuple):
    """Adjacent passages that share a call of SDPA, padded to `longest` tokens.

    real: (passages, longest), False on padding; places: (tokens,), the position of each token in the flattened grid.
    Both are None if all passages have `longest` tokens.
    """

    tokens: int
    passages: int
    longest: int
    real: Tensor | None = None
    places: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Passages:
    """The boundaries of the passages of a forward pass.

    lengths: tokens of each passage; compiled layers do not read them.
    offsets: (passages + 1,) int32; passage p is tokens[offsets[p]:offsets[p + 1]].
    longest: an upper bound of the lengths; each value makes torch.compile trace again, so there should be few.
    flash: whether FlashAttention may be called on a GPU in half precision.
    """

    lengths: list[int]
    offsets: Tensor
    longest: int
    flash: bool = True

    @cached_property
    def buckets(self) -> list[Bucket]:
        """The passages as buckets, in their order; made once, as every layer uses the same."""
        share = SHARES.get(self.offsets.device.type, GPU_SHARE)
        return [_make_bucket(self, first, stop) for first, stop in bucket_bounds(self.lengths, share)]

    def first_tokens(self, hidden: Tensor) -> Tensor:
        """(passages, 1, hidden) of (1, tokens, hidden)."""
        return hidden.squeeze(0)[self.offsets[:-1].long()][:, None]  # hidden[0] copies its gradient


class AttentionSettings(TypedDict, total=False):
    """The keywords of `attend`, from transformers and from the hooks of `rerank.models.packing`."""

    passages: Passages | None
    scaling: float | None
    sliding_window: int | None
    is_causal: bool | None
    first_only: bool


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **settings: Unpack[AttentionSettings],
) -> tuple[Tensor, None]:
    """Implements transformers' attention interface for packed passages; returns (1, tokens, heads, size).

    Query, key and value are (1, heads, tokens, size); keys and values may have fewer heads, each shared by equally many
    successive heads of the queries (grouped-query attention). With a `sliding_window` of w, tokens attend to tokens
    less than w away. If the module is causal, they attend only to earlier tokens and themselves. The weights of
    attention have no dropout. With `first_only`, the result is needed for the first tokens of passages only; the rest
    may be 0.

    On CUDA in half precision, FlashAttention processes all passages in one call if `passages.flash` is True. Otherwise
    the passages of a bucket share a call of SDPA, or in bf16 on a CPU two products. Without `passages`, each row is a
    passage.
    """
    for name in UNSUPPORTED:
        if settings.get(name) is not None:
            raise UnsupportedAttentionError(f"its attention takes {name}")
    passages, scaling = settings.get("passages"), settings.get("scaling")
    is_causal, sliding_window = settings.get("is_causal"), settings.get("sliding_window")
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
    # Split once and concatenate once: the backward pass of repeated slicing is quadratic in the tokens.
    parts = zip(buckets, queries.split(sizes), keys.split(sizes), values.split(sizes), strict=True)
    if settings.get("first_only") and window == (-1, -1):
        firsts = torch.cat([_attend_with_first(bucket, q, k, v, scaling) for bucket, q, k, v in parts])
        return torch.zeros_like(values).index_copy(0, passages.offsets[:-1].long(), firsts)[None], None
    return torch.cat([_attend_bucket(bucket, q, k, v, scaling, window) for bucket, q, k, v in parts])[None], None


def register_attention() -> None:
    """Makes `attend` known to transformers as the attention IMPLEMENTATION."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    def mask(attention_mask: Tensor | None = None, **settings: Any) -> Tensor | None:
        """Packed passages have no `attention_mask` and need no mask."""
        return None if attention_mask is None else sdpa_mask(attention_mask=attention_mask, **settings)

    AttentionInterface.register(IMPLEMENTATION, attend)
    AttentionMaskInterface.register(IMPLEMENTATION, mask)


def bucket_bounds(lengths: list[int], share: float) -> list[tuple[int, int]]:
    """(first, stop) of groups of adjacent lengths whose shortest is at least this share of the longest."""
    bounds: list[tuple[int, int]] = []
    first, shortest, longest = 0, lengths[0], lengths[0]
    for index, length in enumerate(lengths):
        shortest, longest = min(shortest, length), max(longest, length)
        if shortest < share * longest:
            bounds.append((first, index))
            first, shortest, longest = index, length, length
    return [*bounds, (first, len(lengths))]


def _make_bucket(passages: Passages, first: int, stop: int) -> Bucket:
    """The bucket of passages first to stop - 1, made without a copy between the devices."""
    lengths, offsets = passages.lengths[first:stop], passages.offsets[first : stop + 1]
    tokens, count, longest = sum(lengths), len(lengths), max(lengths)
    if tokens == count * longest:
        return Bucket(tokens, count, longest)
    longest = -(-longest // 8) * 8  # the kernels need aligned rows of the mask
    sizes, device = offsets.diff(), offsets.device
    shifts = torch.arange(count, device=device) * longest - (offsets[:-1] - offsets[0])
    places = torch.arange(tokens, device=device) + torch.repeat_interleave(shifts, sizes, output_size=tokens)
    return Bucket(tokens, count, longest, torch.arange(longest, device=device) < sizes[:, None], places)


def _attend_rows(query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: Window) -> Tensor:
    """Attention within rows of one length: (rows, heads, tokens, size) each."""
    length = query.shape[2]
    if window[1] == 0 and not 0 <= window[0] < length - 1:  # the kernels need no mask for plain causality
        return F.scaled_dot_product_attention(query, key, value, is_causal=length > 1, scale=scaling)
    return _attend(query, key, value, scaling, _window_mask(length, window, query.device))


def _attend(query: Tensor, key: Tensor, value: Tensor, scaling: float | None, mask: Tensor | None) -> Tensor:
    """Attention of (rows, heads, tokens, size) each, where the mask is True; each token attends to at least one."""
    if value.dtype == torch.bfloat16 and value.device.type == "cpu" and key.shape[2] <= LONGEST_BY_PRODUCTS:
        return _attend_by_products(query, key, value, scaling, mask)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)


def _attend_by_products(
    query: Tensor, key: Tensor, value: Tensor, scaling: float | None, mask: Tensor | None
) -> Tensor:
    """The same by plain products, which hold the weights of attention in memory."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    logits = (query * scale) @ key.transpose(-1, -2)
    if mask is not None:
        logits = logits.masked_fill(~mask, -torch.inf)
    return logits.softmax(dim=-1) @ value


def _window_mask(length: int, window: Window, device: torch.device) -> Tensor | None:
    """Mask of the tokens that may attend to each other, (length, length); None if the window covers all tokens."""
    before, after = (length if side < 0 else side for side in window)
    if min(before, after) >= length - 1:
        return None
    positions = torch.arange(length, device=device)
    distances = positions[:, None] - positions
    return (distances <= before) & (-distances <= after)


def _attend_bucket(
    bucket: Bucket, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: Window
) -> Tensor:
    """Attention within the passages of a bucket: query, key, value and result are (tokens, heads, size)."""
    q, k, v = (_to_grid(x, bucket) for x in (query, key, value))
    if bucket.real is None or bucket.places is None:
        return _attend_rows(q, k, v, scaling, window).transpose(1, 2).flatten(0, 1)
    mask = bucket.real[:, None, None]
    near = _window_mask(bucket.longest, window, query.device)
    if near is not None:  # padding attends to everything: a row without any key would give NaN
        mask = (mask & near) | ~bucket.real[:, None, :, None]
    out = _attend(q, k, v, scaling, mask)
    return out.transpose(1, 2).flatten(0, 1).index_select(0, bucket.places)


def _attend_with_first(bucket: Bucket, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
    """Attention of the first token of each passage of a bucket: (passages, heads, size)."""
    q, k, v = (_to_grid(x, bucket) for x in (query, key, value))
    mask = None if bucket.real is None else bucket.real[:, None, None]
    return _attend(q[:, :, :1], k, v, scaling, mask)[:, :, 0]


def _to_grid(x: Tensor, bucket: Bucket) -> Tensor:
    """(tokens, heads, size) as (passages, heads, longest, size), 0 on padding."""
    if bucket.places is not None:
        x = x.new_zeros(bucket.passages * bucket.longest, *x.shape[1:]).index_copy(0, bucket.places, x)
    grid: Tensor = x.unflatten(0, (bucket.passages, bucket.longest))
    return grid.transpose(1, 2)


def _fits_flash(query: Tensor, value: Tensor) -> bool:
    """Whether FlashAttention takes tensors of this device, type and size."""
    half = value.dtype in (torch.float16, torch.bfloat16)
    size = value.shape[-1]
    return value.is_cuda and half and query.shape[-1] == size <= 256 and size % 8 == 0


def _attend_any_lengths(
    queries: Tensor, keys: Tensor, values: Tensor, passages: Passages, scaling: float | None, window: Window
) -> Tensor:
    from torch.nn.attention import varlen

    # Rotary positions make queries and keys float32, and autocast does not apply to the kernel.
    out = varlen.varlen_attn(
        queries.to(values.dtype), keys.to(values.dtype), values, passages.offsets, passages.offsets,
        passages.longest, passages.longest, scale=scaling, window_size=window,
    )  # fmt: skip
    return cast(Tensor, out)
