"""Packing: makes a Hugging Face model take packed passages, and compares its vectors with those of padded ones."""

import contextlib
import inspect
import math
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from rerank.models.last_token import LastTokenHead
from rerank.models.packed_attention import IMPLEMENTATION, Passages, UnsupportedAttentionError, register_attention

PROBE_LENGTH = 160
"""Tokens of the passage that an encoder is tested with: more than the attention windows of known encoders."""

TOLERANCE = 1e-3
"""The largest relative difference from padded passages; rounding errors are about 1e-5."""

PROBE_WINDOW = 16
"""The attention window that a decoder is tested with, instead of thousands of tokens."""


def pack(model: Any, first_position: int, pad_id: int, max_length: int, last_token: LastTokenHead | None = None) -> str:
    """Makes a Hugging Face model accept packed passages; returns "" on success, or the reason why it cannot.

    The forward pass then takes `input_ids` and `position_ids`, (1, tokens), and the keyword `passages`. The last layer
    returns only the first token of each passage, (passages, 1, hidden), so heads that read token 0 work unchanged; the
    body of a model whose head reads the last token, `last_token`, returns all tokens. Two passages are run packed and
    padded, to detect models that mix tokens in other ways.
    """
    body = model if last_token is None else last_token.body
    if not getattr(model, "_supports_attention_backend", False):
        return f"the attention of {type(model).__name__} is its own"
    if "position_ids" not in inspect.signature(body.forward).parameters:
        return f"{type(model).__name__} takes no position ids"
    before = model.config._attn_implementation
    register_attention()
    lengths = [min(max_length, PROBE_LENGTH), 7]
    hook = None
    if last_token is None:
        layers = layers_of(model)
        if not layers:
            return f"{type(model).__name__} has no list of its layers"
        part = layers[-1].attention if _has_bert_layout(layers[-1]) else layers[-1]
        hook = part.register_forward_hook(_first_tokens, with_kwargs=True)
    try:
        if last_token is None:
            model.set_attn_implementation(IMPLEMENTATION)
            error = _difference(model, first_position, pad_id, lengths)
        else:
            error = _difference_of_last_tokens(model, last_token, pad_id, lengths)
        reason = f"{type(model).__name__} gives packed passages other vectors, by {error:.1g}"
    except UnsupportedAttentionError as unsupported:
        error, reason = math.inf, f"{type(model).__name__}: {unsupported}"
    if error <= TOLERANCE:
        return ""
    if hook is not None:
        hook.remove()
    model.set_attn_implementation(before)
    return reason


def layers_of(model: Any) -> list[Any]:
    """The layers of a Hugging Face model, first to last; none if it has no list of them."""
    count = model.config.get_text_config().num_hidden_layers
    stacks = (m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == count)
    return list(next(stacks, ()))


def _has_bert_layout(layer: Any) -> bool:
    """Whether a layer is attention, then a feed-forward part that treats each token by itself.

    In the last layer that part then needs the first tokens only.
    """
    return all(hasattr(layer, name) for name in ("attention", "intermediate", "output"))


def weights_of_first_tokens(model: Any) -> list[Tensor]:
    """The weights of the linear layers that process only the first token of each packed passage."""
    last = layers_of(model)[-1]
    if not _has_bert_layout(last):
        return []
    return [m.weight for part in (last.intermediate, last.output) for m in part.modules() if isinstance(m, nn.Linear)]


@torch.no_grad()
def _difference(model: Any, first_position: int, pad_id: int, lengths: list[int]) -> float:
    """The largest difference between the vectors of packed and of padded passages, relative to the largest value."""
    training = model.training
    model.eval()
    ids, positions, passages = probe(lengths, pad_id, model.config.vocab_size)
    padded_ids, mask = _padded(ids, lengths, pad_id)
    outputs = [
        model(input_ids=padded_ids, attention_mask=mask.long()),
        model(input_ids=ids[None], position_ids=positions[None] + first_position, passages=passages),
    ]
    model.train(training)
    padded, packed = (out.logits if hasattr(out, "logits") else out.last_hidden_state[:, 0] for out in outputs)
    return _relative(padded, packed)


@torch.no_grad()
def _difference_of_last_tokens(model: Any, last_token: LastTokenHead, pad_id: int, lengths: list[int]) -> float:
    """As `_difference`, for the last tokens; the model's own attention gives the padded ones, and is replaced then."""
    body = last_token.body
    training = model.training
    model.eval()
    ids, positions, passages = probe(lengths, pad_id, model.config.get_text_config().vocab_size)
    padded_ids, mask = _padded(ids, lengths, pad_id)
    with _short_windows(model):
        padded = body(input_ids=padded_ids, attention_mask=mask.long(), use_cache=False).last_hidden_state
        model.set_attn_implementation(IMPLEMENTATION)
        packed = body(input_ids=ids[None], position_ids=positions[None], passages=passages, use_cache=False)
    model.train(training)
    ends = torch.tensor(lengths) - 1, passages.offsets[1:].long() - 1
    return _relative(padded[torch.arange(len(lengths)), ends[0]], packed.last_hidden_state[0, ends[1]])


def probe(lengths: list[int], pad_id: int, vocab_size: int) -> tuple[Tensor, Tensor, Passages]:
    """Token ids and positions, (tokens,) each, of packed passages of these lengths; no token is padding."""
    positions = torch.cat([torch.arange(length) for length in lengths])
    ids = (positions % min(50, vocab_size - 1) + pad_id + 1) % vocab_size
    return ids, positions, Passages(lengths, torch.tensor([0, *accumulate(lengths)], dtype=torch.int32), max(lengths))


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
