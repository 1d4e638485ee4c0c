"""Attention over packed (unpadded) sequences: passages are concatenated, and each attends only to itself.

The linear layers of an encoder then see real tokens only. transformers' AttentionInterface lets most encoders call the
attention function of this module, with the boundaries of the passages as an extra keyword.
"""

import inspect
import math
from itertools import accumulate, groupby
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

IMPLEMENTATION = "rerank_packed"

PROBE_LENGTH = 160
"""Tokens of the passage that an encoder is tested with: more than the attention windows of known encoders."""

TOLERANCE = 1e-3
"""The largest relative difference from padded passages; rounding errors are about 1e-5."""


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
    **_: Any,
) -> tuple[Tensor, None]:
    """Implements transformers' attention interface for packed passages; returns (1, tokens, heads, size).

    Query, key and value are (1, heads, tokens, size).
    With a `sliding_window` of w, tokens attend to tokens less than w away. There is no attention dropout: neither
    kernel supports it. On CUDA in half precision, one kernel processes all passages; otherwise, adjacent passages of
    equal length share a call. Without `passages`, each row is a passage, (passages, heads, tokens, size), as when the
    encoder is used outside of this package.
    """
    window = -1 if sliding_window is None else sliding_window - 1
    if passages is None:
        mask = _window_mask(query.shape[2], window, query.device) if attention_mask is None else attention_mask
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
        return attended.transpose(1, 2).contiguous(), None
    queries, keys, values = (x[0].transpose(0, 1) for x in (query, key, value))
    if value.is_cuda and value.dtype in (torch.float16, torch.bfloat16):
        return _attend_any_lengths(queries, keys, values, passages, scaling, window)[None], None
    runs = [(length, len(list(run))) for length, run in groupby(passages.lengths)]
    sizes = [length * count for length, count in runs]
    # Splitting and concatenating once keeps the backward pass linear in the tokens, which slicing would not.
    parts = zip(queries.split(sizes), keys.split(sizes), values.split(sizes), strict=True)
    out = [_attend_equal_lengths(*part, *run, scaling, window) for part, run in zip(parts, runs, strict=True)]
    return torch.cat(out)[None], None


def _window_mask(length: int, window: int, device: torch.device) -> Tensor | None:
    """Mask of the tokens that may attend to each other, (length, length); None if all may."""
    if not 0 <= window < length - 1:
        return None
    positions = torch.arange(length, device=device)
    return (positions[:, None] - positions).abs() <= window


def _attend_equal_lengths(
    query: Tensor, key: Tensor, value: Tensor, length: int, count: int, scaling: float | None, window: int
) -> Tensor:
    """Attention within `count` passages of the same length: query, key, value and result are (tokens, heads, size)."""
    q, k, v = (x.reshape(count, length, *x.shape[1:]).transpose(1, 2) for x in (query, key, value))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=_window_mask(length, window, query.device), scale=scaling)
    return out.transpose(1, 2).reshape(query.shape)


def _attend_any_lengths(
    queries: Tensor, keys: Tensor, values: Tensor, passages: Passages, scaling: float | None, window: int
) -> Tensor:
    from torch.nn.attention import varlen

    longest = max(passages.lengths)
    # Rotary positions make queries and keys float32, and autocast does not apply to the kernel.
    out = varlen.varlen_attn(
        queries.to(values.dtype), keys.to(values.dtype), values, passages.offsets, passages.offsets, longest, longest,
        scale=scaling, window_size=(window, window),
    )  # fmt: skip
    return cast(Tensor, out)


def _mask(attention_mask: Tensor | None = None, **settings: Any) -> Tensor | None:
    """The mask function of the interface: packed passages have no `attention_mask` and need no mask."""
    from transformers.masking_utils import sdpa_mask

    mask: Tensor | None = None if attention_mask is None else sdpa_mask(attention_mask=attention_mask, **settings)
    return mask


def pack(model: Any, first_position: int, pad_id: int, max_length: int) -> str:
    """Makes a Hugging Face encoder accept packed passages; returns "" on success, or the reason why it cannot.

    The forward pass then takes `input_ids` and `position_ids`, (1, tokens), and the keyword `passages`. The last layer
    returns only the first token of each passage, (passages, 1, hidden), so heads that read token 0 work unchanged. Two
    passages are run packed and padded, to detect encoders that mix tokens in other ways.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    if not getattr(model, "_supports_attention_backend", False):
        return f"the attention of {type(model).__name__} is its own"
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return f"{type(model).__name__} takes no position ids"
    last = _last_layer(model)
    if last is None:
        return f"{type(model).__name__} has no list of its layers"
    before = model.config._attn_implementation
    AttentionInterface.register(IMPLEMENTATION, attend)
    AttentionMaskInterface.register(IMPLEMENTATION, _mask)
    model.set_attn_implementation(IMPLEMENTATION)
    hook = (last.attention if _has_bert_layout(last) else last).register_forward_hook(_first_tokens, with_kwargs=True)
    error = _difference(model, first_position, pad_id, [min(max_length, PROBE_LENGTH), 7])
    if error > TOLERANCE:
        hook.remove()
        model.set_attn_implementation(before)
        return f"{type(model).__name__} gives packed passages other vectors, by {error:.1g}"
    return ""


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
    positions = torch.cat([torch.arange(length) for length in lengths])
    ids = (positions % min(50, model.config.vocab_size - 1) + pad_id + 1) % model.config.vocab_size
    padded_ids = torch.full((len(lengths), max(lengths)), pad_id)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    padded_ids[mask] = ids
    offsets = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
    outputs = [
        model(input_ids=padded_ids, attention_mask=mask.long()),
        model(input_ids=ids[None], position_ids=positions[None] + first_position, passages=Passages(lengths, offsets)),
    ]
    model.train(training)
    padded, packed = (out.logits if hasattr(out, "logits") else out.last_hidden_state[:, 0] for out in outputs)
    if padded.shape != packed.shape:
        return math.inf
    return float((padded - packed).abs().max() / padded.abs().max().clamp_min(1e-6))


def _first_tokens(module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
    if kwargs.get("passages") is None:
        return output
    hidden, *rest = output if isinstance(output, tuple) else (output,)
    first = hidden[0, kwargs["passages"].offsets[:-1].long()][:, None]
    return (first, *rest) if isinstance(output, tuple) else first
