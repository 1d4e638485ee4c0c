"""Attention over packed (unpadded) sequences: passages are concatenated, and each attends only to itself.

The linear layers of an encoder then see real tokens only. transformers' AttentionInterface lets most encoders and
decoders call the attention function of this module, with the boundaries of the passages as an extra keyword.
"""

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rerank.models.cpu.attention import attend_compiled, fits
from rerank.models.encoder_inputs import Bucket, Passages
from rerank.models.product_attention import attend_by_products, fits_products

IMPLEMENTATION = "rerank_packed"

UNSUPPORTED = ("softcap", "s_aux", "sinks", "position_bias", "indices", "block_indices")
"""Keywords of transformers' attention interface that no packed kernel supports."""


class UnsupportedAttentionError(NotImplementedError):
    """The attention of a model needs more than the packed kernels compute."""


Window = tuple[int, int]
"""How many tokens before and after itself a token attends to; -1: all. A causal token attends to none after it."""


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
    first_only: bool = False,
    **others: Any,
) -> tuple[Tensor, None]:
    """Implements transformers' attention interface for packed passages; returns (1, tokens, heads, size).

    Query, key and value are (1, heads, tokens, size); keys and values may have fewer heads, each for as many successive
    heads of the queries. With a `sliding_window` of w, tokens attend to tokens less than w away. If the module is
    causal, they attend to earlier tokens and themselves alone. There is no attention dropout: no kernel supports it.
    With `first_only`, only the first tokens of passages need their values; others may be 0.

    On CUDA in half precision, FlashAttention processes all passages in one call, unless `passages` says otherwise, and
    on a CPU a kernel of our own does. Else those of a bucket share a call of SDPA, in whose place there are matrix
    products on a CPU in bf16. Without `passages`, each row is a passage, as outside of this package.
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
    if fits(query, value):
        return _attend_on_cpu(queries, keys, values, passages, scaling, window, first_only)[None], None
    buckets = passages.buckets
    sizes = [bucket.tokens for bucket in buckets]
    # Splitting and concatenating once keeps the backward pass linear in the tokens, which slicing would not.
    parts = zip(queries.split(sizes), keys.split(sizes), values.split(sizes), strict=True)
    out = [_attend_bucket(*part, bucket, scaling, window) for part, bucket in zip(parts, buckets, strict=True)]
    return torch.cat(out)[None], None


def _fits_flash(query: Tensor, value: Tensor) -> bool:
    """Whether FlashAttention takes tensors of this device, type and size."""
    half = value.dtype in (torch.float16, torch.bfloat16)
    size = value.shape[-1]
    return value.is_cuda and half and query.shape[-1] == size <= 256 and size % 8 == 0


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

    longest = max(passages.lengths)
    # Rotary positions make queries and keys float32, and autocast does not apply to the kernel.
    out = varlen.varlen_attn(
        queries.to(values.dtype), keys.to(values.dtype), values, passages.offsets, passages.offsets, longest, longest,
        scale=scaling, window_size=window,
    )  # fmt: skip
    return cast(Tensor, out)


def _attend_on_cpu(
    queries: Tensor, keys: Tensor, values: Tensor, passages: Passages, scaling: float | None, window: Window,
    first_only: bool,
) -> Tensor:  # fmt: skip
    """Attention of all passages by `attend_compiled`: (tokens, heads, size) each."""
    queries, keys = queries.to(values.dtype), keys.to(values.dtype)  # rotary positions make them float32
    scale = values.shape[-1] ** -0.5 if scaling is None else scaling
    starts, longest = passages.offsets, max(passages.lengths)
    if not first_only:
        return attend_compiled(queries, keys, values, starts, starts, longest, scale, window)
    firsts, count = starts[:-1], torch.arange(len(starts), dtype=starts.dtype)
    attended = attend_compiled(queries.index_select(0, firsts), keys, values, count, starts, longest, scale, window)
    return torch.zeros_like(values).index_copy(0, firsts.long(), attended)


def register_attention() -> None:
    """Makes `attend` known to transformers as the attention IMPLEMENTATION."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    def mask(attention_mask: Tensor | None = None, **settings: Any) -> Any:
        """Packed passages have no `attention_mask` and need no mask."""
        return None if attention_mask is None else sdpa_mask(attention_mask=attention_mask, **settings)

    AttentionInterface.register(IMPLEMENTATION, attend)
    AttentionMaskInterface.register(IMPLEMENTATION, mask)
