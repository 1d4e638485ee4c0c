"""Attention over packed (unpadded) sequences: passages are concatenated, and each attends only to itself.

The linear layers of an encoder then see real tokens only. transformers' AttentionInterface lets most encoders and
decoders call the attention function of this module, with the boundaries of the passages as an extra keyword.
"""

from itertools import groupby
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

IMPLEMENTATION = "rerank_packed"

UNSUPPORTED = {
    "softcap": "soft-caps attention scores",
    "s_aux": "has attention sinks",
    "sinks": "has attention sinks",
    "position_bias": "adds a position bias to attention scores",
    "indices": "attends to chosen tokens",
    "block_indices": "attends to chosen blocks",
}
"""Keywords of transformers' attention interface that no packed kernel supports, and what a model does with them."""


class UnsupportedAttentionError(NotImplementedError):
    """The attention of a model needs more than the packed kernels compute."""


class Passages(NamedTuple):
    """The boundaries of the passages of a forward pass.

    lengths: tokens of each; offsets: (passages + 1,) int32, passage p is tokens[offsets[p]:offsets[p + 1]]; longest:
    no passage has more tokens.
    """

    lengths: list[int]
    offsets: Tensor
    longest: int


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

    Query, key and value are (1, heads, tokens, size); keys and values may have fewer heads, each for as many
    successive heads of the queries. With a `sliding_window` of w, tokens attend to tokens less than w away. If the
    module is causal, they attend to earlier tokens and themselves alone. There is no attention dropout: neither
    kernel supports it. On CUDA in half precision, one kernel processes all passages (of heads up to 256 wide);
    otherwise, adjacent passages of equal length share a call. Without `passages`, each row is a passage, (passages,
    heads, tokens, size), as when the encoder is used outside of this package. Raises UnsupportedAttentionError for a
    keyword of UNSUPPORTED.
    """
    for name, what in UNSUPPORTED.items():
        if others.get(name) is not None:
            raise UnsupportedAttentionError(f"the attention of this model {what}")
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
    if _has_one_kernel(query, value):
        return _attend_any_lengths(queries, keys, values, passages, scaling, window)[None], None
    if torch.compiler.is_compiling():
        raise UnsupportedAttentionError("its attention takes one call for each length")
    runs = [(length, len(list(run))) for length, run in groupby(passages.lengths)]
    sizes = [length * count for length, count in runs]
    # Splitting and concatenating once keeps the backward pass linear in the tokens, which slicing would not.
    parts = zip(queries.split(sizes), keys.split(sizes), values.split(sizes), strict=True)
    out = [_attend_equal_lengths(*part, *run, scaling, window) for part, run in zip(parts, runs, strict=True)]
    return torch.cat(out)[None], None


def _has_one_kernel(query: Tensor, value: Tensor) -> bool:
    """Whether one kernel takes passages of any lengths."""
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
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)


def _attend_equal_lengths(
    query: Tensor, key: Tensor, value: Tensor, length: int, count: int, scaling: float | None, window: Window
) -> Tensor:
    """Attention within `count` passages of the same length: query, key, value and result are (tokens, heads, size)."""
    q, k, v = (x.reshape(count, length, *x.shape[1:]).transpose(1, 2) for x in (query, key, value))
    return _attend_rows(q, k, v, scaling, window).transpose(1, 2).reshape(*query.shape[:2], value.shape[-1])


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
