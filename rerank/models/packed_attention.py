"""Attention over packed passages: they stand one after the other, without padding, and each attends to itself alone.

The linear layers of an encoder see real tokens only. transformers hands the attention of most encoders to a function of
ours (its AttentionInterface), with the passages' places as an extra keyword.
"""

import inspect
import math
from itertools import accumulate, groupby
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

IMPLEMENTATION = "rerank_packed"

LONGEST_TRIED = 160
"""Tokens of the passage that an encoder is tried with: more than the windows of those that have one."""

TOLERANCE = 1e-3
"""The largest difference to padded passages, over the size of the vectors; rounding makes 1e-5."""


class Passages(NamedTuple):
    """Where the passages of a forward pass lie.

    lengths: tokens of each; offsets: (passages + 1,) int32, passage p is tokens offsets[p] to offsets[p + 1].
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
    """The attention of transformers' interface: (1, heads, tokens, size) three times -> (1, tokens, heads, size).

    A `sliding_window` of w lets tokens attend to those less than w away. No attention weight is dropped: neither
    kernel can. On CUDA in half precision one kernel takes all passages; elsewhere passages of equal length that stand
    together take one call. Without `passages` each row is one, (passages, heads, tokens, size), as the encoder is
    used by itself.
    """
    window = -1 if sliding_window is None else sliding_window - 1
    if passages is None:
        near = _near(query.shape[2], window, query.device) if attention_mask is None else attention_mask
        alone = F.scaled_dot_product_attention(query, key, value, attn_mask=near, scale=scaling)
        return alone.transpose(1, 2).contiguous(), None
    queries, keys, values = (x[0].transpose(0, 1) for x in (query, key, value))
    if value.is_cuda and value.dtype in (torch.float16, torch.bfloat16):
        return _varlen(queries, keys, values, passages, scaling, window)[None], None
    runs = [(length, len(list(run))) for length, run in groupby(passages.lengths)]
    sizes = [length * count for length, count in runs]
    # Splitting and concatenating once keeps the backward pass linear in the tokens, which slicing would not.
    parts = zip(queries.split(sizes), keys.split(sizes), values.split(sizes), strict=True)
    out = [_equal(*part, *run, scaling, window) for part, run in zip(parts, runs, strict=True)]
    return torch.cat(out)[None], None


def _near(length: int, window: int, device: torch.device) -> Tensor | None:
    """Which tokens may attend to which, (length, length); None where all may."""
    if not 0 <= window < length - 1:
        return None
    places = torch.arange(length, device=device)
    return (places[:, None] - places).abs() <= window


def _equal(
    query: Tensor, key: Tensor, value: Tensor, length: int, count: int, scaling: float | None, window: int
) -> Tensor:
    """Attention within `count` passages of one length: (tokens, heads, size) three times -> the same shape."""
    q, k, v = (x.reshape(count, length, *x.shape[1:]).transpose(1, 2) for x in (query, key, value))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=_near(length, window, query.device), scale=scaling)
    return out.transpose(1, 2).reshape(query.shape)


def _varlen(
    queries: Tensor, keys: Tensor, values: Tensor, passages: Passages, scaling: float | None, window: int
) -> Tensor:
    from torch.nn.attention import varlen

    longest = max(passages.lengths)
    # Queries and keys that rotary positions turned are float32; autocast does not reach the kernel.
    out = varlen.varlen_attn(
        queries.to(values.dtype), keys.to(values.dtype), values, passages.offsets, passages.offsets, longest, longest,
        scale=scaling, window_size=(window, window),
    )  # fmt: skip
    return cast(Tensor, out)


def _mask(attention_mask: Tensor | None = None, **settings: Any) -> Tensor | None:
    """Packed passages need no mask: they come without an `attention_mask`."""
    from transformers.masking_utils import sdpa_mask

    mask: Tensor | None = None if attention_mask is None else sdpa_mask(attention_mask=attention_mask, **settings)
    return mask


def pack(model: Any, first_position: int, pad_id: int, max_length: int) -> str:
    """Makes a Hugging Face encoder take packed passages; returns why it cannot, or "".

    Its forward pass then takes (1, tokens) `input_ids` and `position_ids` and the keyword `passages`, and what leaves
    its last layer is the first token of each passage, (passages, 1, hidden): heads that read token 0 work as they are.
    Two passages are tried both ways, so that an encoder that mixes tokens in a way of its own is found out.
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
    hook = (last.attention if _of_bert_s_kind(last) else last).register_forward_hook(_first_tokens, with_kwargs=True)
    error = _difference(model, first_position, pad_id, [min(max_length, LONGEST_TRIED), 7])
    if error > TOLERANCE:
        hook.remove()
        model.set_attn_implementation(before)
        return f"{type(model).__name__} gives packed passages other vectors, by {error:.1g}"
    return ""


def _last_layer(model: Any) -> Any:
    count = model.config.num_hidden_layers
    stacks = (m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == count)
    return next((stack[-1] for stack in stacks), None)


def _of_bert_s_kind(layer: Any) -> bool:
    """Behind the attention of such a layer each token is on its own: the rest of the last layer needs the first one."""
    return all(hasattr(layer, name) for name in ("attention", "intermediate", "output"))


def weights_of_first_tokens(model: Any) -> list[Tensor]:
    """The weights of the linear layers that only the first token of each packed passage goes through."""
    last = _last_layer(model)
    if not _of_bert_s_kind(last):
        return []
    return [m.weight for part in (last.intermediate, last.output) for m in part.modules() if isinstance(m, nn.Linear)]


@torch.no_grad()
def _difference(model: Any, first_position: int, pad_id: int, lengths: list[int]) -> float:
    """How far the vectors of packed and padded passages are apart, over their size."""
    training = model.training
    model.eval()
    places = torch.cat([torch.arange(length) for length in lengths])
    ids = (places % min(50, model.config.vocab_size - 1) + pad_id + 1) % model.config.vocab_size
    grid = torch.full((len(lengths), max(lengths)), pad_id)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    grid[mask] = ids
    offsets = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
    outputs = [
        model(input_ids=grid, attention_mask=mask.long()),
        model(input_ids=ids[None], position_ids=places[None] + first_position, passages=Passages(lengths, offsets)),
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
