"""Attention over packed (unpadded) sequences: passages are concatenated, and each attends only to itself.

The linear layers of an encoder then see real tokens only. transformers' AttentionInterface lets most encoders and
decoders call the attention function of this module, with the boundaries of the passages as an extra keyword.
"""

import contextlib
import inspect
import math
from collections.abc import Iterator
from itertools import accumulate, groupby
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rerank.models.last_token import LastTokenHead

IMPLEMENTATION = "rerank_packed"

PROBE_LENGTH = 160
"""Tokens of the passage that an encoder is tested with: more than the attention windows of known encoders."""

TOLERANCE = 1e-3
"""The largest relative difference from padded passages; rounding errors are about 1e-5."""

PROBE_WINDOW = 16
"""The attention window that a decoder is tested with, instead of thousands of tokens."""

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

    lengths: tokens of each; offsets: (passages + 1,) int32, passage p is tokens[offsets[p]:offsets[p + 1]].
    """

    lengths: list[int]
    offsets: Tensor


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
    queries, keys, values = (x[0].transpose(0, 1) for x in (query, key, value))
    if value.is_cuda and value.dtype in (torch.float16, torch.bfloat16) and query.shape[-1] == value.shape[-1] <= 256:
        return _attend_any_lengths(queries, keys, values, passages, scaling, window)[None], None
    runs = [(length, len(list(run))) for length, run in groupby(passages.lengths)]
    sizes = [length * count for length, count in runs]
    # Splitting and concatenating once keeps the backward pass linear in the tokens, which slicing would not.
    parts = zip(queries.split(sizes), keys.split(sizes), values.split(sizes), strict=True)
    out = [_attend_equal_lengths(*part, *run, scaling, window) for part, run in zip(parts, runs, strict=True)]
    return torch.cat(out)[None], None


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

    longest = max(passages.lengths)
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


def pack(model: Any, first_position: int, pad_id: int, max_length: int, last_token: LastTokenHead | None = None) -> str:
    """Makes a Hugging Face model accept packed passages; returns "" on success, or the reason why it cannot.

    The forward pass then takes `input_ids` and `position_ids`, (1, tokens), and the keyword `passages`. The last layer
    returns only the first token of each passage, (passages, 1, hidden), so heads that read token 0 work unchanged; the
    body of a model whose head reads the last token, `last_token`, returns all tokens. Two passages are run packed and
    padded, to detect models that mix tokens in other ways.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    body = model if last_token is None else last_token.body
    if not getattr(model, "_supports_attention_backend", False):
        return f"the attention of {type(model).__name__} is its own"
    if "position_ids" not in inspect.signature(body.forward).parameters:
        return f"{type(model).__name__} takes no position ids"
    before = model.config._attn_implementation
    AttentionInterface.register(IMPLEMENTATION, attend)
    AttentionMaskInterface.register(IMPLEMENTATION, _mask)
    lengths = [min(max_length, PROBE_LENGTH), 7]
    if last_token is not None:
        reason = _pack_decoder(model, last_token, pad_id, lengths)
    elif (last := _last_layer(model)) is None:
        return f"{type(model).__name__} has no list of its layers"
    else:
        model.set_attn_implementation(IMPLEMENTATION)
        part = last.attention if _has_bert_layout(last) else last
        hook = part.register_forward_hook(_first_tokens, with_kwargs=True)
        reason = _reason(model, _difference(model, first_position, pad_id, lengths))
        if reason:
            hook.remove()
    if reason:
        model.set_attn_implementation(before)
    return reason


def _reason(model: Any, error: float) -> str:
    return f"{type(model).__name__} gives packed passages other vectors, by {error:.1g}" if error > TOLERANCE else ""


def _last_layer(model: Any) -> Any:
    count = model.config.num_hidden_layers
    stacks = (m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == count)
    return next((stack[-1] for stack in stacks), None)


def _has_bert_layout(layer: Any) -> bool:
    """Whether a layer is attention, then a feed-forward part that treats each token by itself.

    In the last layer that part then needs the first tokens only.
    """
    return all(hasattr(layer, name) for name in ("attention", "intermediate", "output"))


def weights_of_first_tokens(model: Any) -> list[Tensor]:
    """The weights of the linear layers that process only the first token of each packed passage."""
    last = _last_layer(model)
    if not _has_bert_layout(last):
        return []
    return [m.weight for part in (last.intermediate, last.output) for m in part.modules() if isinstance(m, nn.Linear)]


@torch.no_grad()
def _difference(model: Any, first_position: int, pad_id: int, lengths: list[int]) -> float:
    """The largest difference between the vectors of packed and of padded passages, relative to the largest value."""
    training = model.training
    model.eval()
    ids, positions, passages = _probe(lengths, pad_id, model.config.vocab_size)
    padded_ids, mask = _padded(ids, lengths, pad_id)
    outputs = [
        model(input_ids=padded_ids, attention_mask=mask.long()),
        model(input_ids=ids[None], position_ids=positions[None] + first_position, passages=passages),
    ]
    model.train(training)
    padded, packed = (out.logits if hasattr(out, "logits") else out.last_hidden_state[:, 0] for out in outputs)
    return _relative(padded, packed)


@torch.no_grad()
def _pack_decoder(model: Any, last_token: LastTokenHead, pad_id: int, lengths: list[int]) -> str:
    """As the end of `pack`: compares the last tokens' vectors with those that the model's own attention gives."""
    body = last_token.body
    training = model.training
    model.eval()
    ids, positions, passages = _probe(lengths, pad_id, model.config.get_text_config().vocab_size)
    padded_ids, mask = _padded(ids, lengths, pad_id)
    try:
        with _short_windows(model):
            padded = body(input_ids=padded_ids, attention_mask=mask.long(), use_cache=False).last_hidden_state
            model.set_attn_implementation(IMPLEMENTATION)
            packed = body(input_ids=ids[None], position_ids=positions[None], passages=passages, use_cache=False)
    except UnsupportedAttentionError as unsupported:
        return f"{type(model).__name__}: {unsupported}"
    finally:
        model.train(training)
    last = torch.tensor(lengths) - 1
    difference = _relative(
        padded[torch.arange(len(lengths)), last], packed.last_hidden_state[0][passages.offsets[1:].long() - 1]
    )
    return _reason(model, difference)


def _probe(lengths: list[int], pad_id: int, vocab_size: int) -> tuple[Tensor, Tensor, Passages]:
    """Token ids and positions, (tokens,) each, of packed passages of these lengths; no token is padding."""
    positions = torch.cat([torch.arange(length) for length in lengths])
    ids = (positions % min(50, vocab_size - 1) + pad_id + 1) % vocab_size
    return ids, positions, Passages(lengths, torch.tensor([0, *accumulate(lengths)], dtype=torch.int32))


def _padded(ids: Tensor, lengths: list[int], pad_id: int) -> tuple[Tensor, Tensor]:
    """The ids of packed passages as (passages, longest), and the mask of the real tokens."""
    padded_ids = torch.full((len(lengths), max(lengths)), pad_id)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    padded_ids[mask] = ids
    return padded_ids, mask


def _relative(padded: Tensor, packed: Tensor) -> float:
    if padded.shape != packed.shape:
        return math.inf
    return float((padded - packed).abs().max() / padded.abs().max().clamp_min(1e-6))


@contextlib.contextmanager
def _short_windows(model: nn.Module) -> Iterator[None]:
    """Attention windows of PROBE_WINDOW tokens at most, so that the probe is longer than a window."""
    owners = {id(owner): owner for m in model.modules() for owner in (m, getattr(m, "config", None)) if owner}
    changed = []
    for owner in owners.values():
        for name in ("sliding_window", "attention_chunk_size"):
            value = getattr(owner, name, None)
            if isinstance(value, int) and value > PROBE_WINDOW:
                changed.append((owner, name, value))
                setattr(owner, name, PROBE_WINDOW)
    try:
        yield
    finally:
        for owner, name, value in changed:
            setattr(owner, name, value)


def _first_tokens(module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
    if kwargs.get("passages") is None:
        return output
    hidden, *rest = output if isinstance(output, tuple) else (output,)
    first = hidden[0, kwargs["passages"].offsets[:-1].long()][:, None]
    return (first, *rest) if isinstance(output, tuple) else first
