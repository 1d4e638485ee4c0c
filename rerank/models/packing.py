"""Packing: makes a Hugging Face model take packed passages, and compares its vectors with those of padded ones."""

import contextlib
import inspect
import math
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rerank.models.first_tokens import keep_first_tokens
from rerank.models.gpu import Autocast, full_float32
from rerank.models.last_token import LastTokenHead
from rerank.models.packed_attention import IMPLEMENTATION, Passages, UnsupportedAttentionError, register_attention

PROBE_LENGTH = 160
"""Tokens of the passage that an encoder is tested with: more than the attention windows of known encoders."""

TOLERANCE = 1e-3
"""The largest relative difference from padded passages; rounding errors are about 1e-5."""

ROUNDINGS = 4
"""How many times as far from float32 as padded passages packed ones may be, in the precision of a run."""

LARGEST_ROUNDING = 0.2
"""A difference that no rounding explains, relative to the largest value; attention to other passages gives more."""

PROBE_WINDOW = 16
"""The attention window that a decoder is tested with, instead of thousands of tokens."""


class Probe(NamedTuple):
    """A Hugging Face model whose attention is tried, and how it is called; `last_token` is a decoder's head."""

    model: Any
    first_position: int
    pad_id: int
    max_length: int
    last_token: LastTokenHead | None = None


def pack(probe: Probe) -> str:
    """Makes a Hugging Face model accept packed passages; returns "" on success, or the reason why it cannot.

    The forward pass then takes `input_ids` and `position_ids`, (1, tokens), and the keyword `passages`. The last layer
    returns only the first token of each passage, (passages, 1, hidden), so heads that read token 0 work unchanged; the
    body of a model whose head reads the last token, `last_token`, returns all tokens. Two passages are run packed and
    padded, to detect models that mix tokens in other ways.
    """
    model, last_token = probe.model, probe.last_token
    body = model if last_token is None else last_token.body
    if not getattr(model, "_supports_attention_backend", False):
        return f"the attention of {type(model).__name__} is its own"
    if "position_ids" not in inspect.signature(body.forward).parameters:
        return f"{type(model).__name__} takes no position ids"
    hooks = []
    if last_token is None:
        layers = layers_of(model)
        if not layers:
            return f"{type(model).__name__} has no list of its layers"
        hooks = keep_first_tokens(layers[-1])
    before = model.config._attn_implementation
    register_attention()
    try:
        error = _packed_difference(probe)
        reason = f"{type(model).__name__} gives packed passages other vectors, by {error:.1g}"
    except UnsupportedAttentionError as unsupported:
        error, reason = math.inf, f"{type(model).__name__}: {unsupported}"
    if error <= TOLERANCE:
        return ""
    for hook in hooks:
        hook.remove()
    model.set_attn_implementation(before)
    return reason


def layers_of(model: Any) -> list[Any]:
    """The layers of a Hugging Face model, first to last; none if it has no list of them."""
    count = model.config.get_text_config().num_hidden_layers
    stacks = (m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == count)
    return list(next(stacks, ()))


def packing_error(probe: Probe, autocast: Autocast, flash: bool) -> str:
    """Why packed passages cannot be trusted on the model's device in this precision; "" if they can.

    The vectors of four passages, and the gradient of a linear function of them with respect to the embeddings of the
    tokens, are computed packed and padded in the precision of the run, and padded in float32. Packed ones may be
    ROUNDINGS times as far from float32 as padded ones. `flash` is whether FlashAttention may be called (see
    `Passages`).
    """
    lengths = [min(probe.max_length, length) for length in (PROBE_LENGTH, PROBE_LENGTH - 30, 33, 7)]
    training = probe.model.training
    probe.model.eval()
    try:
        with full_float32():
            exact = _vectors_and_gradient(probe, lengths, None)
        with autocast():
            padded = _vectors_and_gradient(probe, lengths, None)
            packed = _vectors_and_gradient(probe, lengths, flash)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # what a kernel refuses
        return str(error).strip().partition("\n")[0]
    finally:
        probe.model.train(training)
    for what, expected, rounded, found in zip(("values", "gradients"), exact, padded, packed, strict=True):
        difference = relative_difference(expected, found)
        allowed = min(LARGEST_ROUNDING, max(TOLERANCE, ROUNDINGS * relative_difference(expected, rounded)))
        if not difference <= allowed:
            return f"its {what} differ from float32's by {difference:.1g}, of which rounding explains {allowed:.1g}"
    return ""


@torch.no_grad()
def rounding_error(probe: Probe, autocast: Autocast) -> float:
    """The largest difference of the vectors of two passages in this precision from float32, relative to the largest."""
    lengths, training = [min(probe.max_length, length) for length in (PROBE_LENGTH, 33)], probe.model.training
    flash = None if probe.model.config._attn_implementation != IMPLEMENTATION else False
    probe.model.eval()
    exact = _vectors(probe, probe.model.base_model, lengths, flash)
    with autocast():
        rounded = _vectors(probe, probe.model.base_model, lengths, flash)
    probe.model.train(training)
    return relative_difference(exact, rounded)


@torch.no_grad()
def _packed_difference(probe: Probe) -> float:
    """The largest difference between the vectors of packed and of padded passages, relative to the largest value.

    The padded ones are computed with the model's own attention, which is then replaced.
    """
    model, lengths = probe.model, [min(probe.max_length, PROBE_LENGTH), 7]
    training = model.training
    model.eval()
    with _short_windows(model) if probe.last_token else contextlib.nullcontext():
        padded = _vectors(probe, model, lengths, None)
        model.set_attn_implementation(IMPLEMENTATION)
        packed = _vectors(probe, model, lengths, True)
    model.train(training)
    return relative_difference(padded, packed)


def _vectors_and_gradient(probe: Probe, lengths: list[int], flash: bool | None) -> tuple[Tensor, Tensor]:
    """Float32 vectors (passages, hidden) and gradients (tokens, embedding); padded passages if `flash` is None."""
    embedded: list[Tensor] = []

    def keep(module: nn.Module, arguments: Any, output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1]

    handle = probe.model.get_input_embeddings().register_forward_hook(keep)
    try:
        vectors = _vectors(probe, probe.model.base_model, lengths, flash).float()
    finally:
        handle.remove()
    direction = torch.arange(
        vectors.shape[1], device=vectors.device
    ).cos()  # of a layer norm, the squares' sum is constant
    (gradient,) = torch.autograd.grad((vectors * direction).sum(), embedded)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return vectors.detach(), (gradient[mask.to(gradient.device)] if flash is None else gradient[0]).float()


def _vectors(probe: Probe, model: Any, lengths: list[int], flash: bool | None) -> Tensor:
    """What `model`, the probe's or its body, computes of each passage: (passages, hidden) vectors, or a head's logits.

    Padded passages if `flash` is None; else packed ones, and `flash` is whether FlashAttention may be called.
    """
    device = next(probe.model.parameters()).device
    ids, positions, passages = probe_tokens(lengths, probe.pad_id, model.config.get_text_config().vocab_size)
    if flash is None:
        mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        padded_ids = torch.full(mask.shape, probe.pad_id)
        padded_ids[mask] = ids
        arguments: dict[str, Any] = {"input_ids": padded_ids.to(device), "attention_mask": mask.long().to(device)}
    else:
        first = 0 if probe.last_token else probe.first_position
        arguments = {"input_ids": ids[None].to(device), "position_ids": (positions[None] + first).to(device)}
        arguments["passages"] = Passages(passages.lengths, passages.offsets.to(device), passages.longest, flash)
    if probe.last_token is None:
        out = model(**arguments)
        vectors: Tensor = out.logits if hasattr(out, "logits") else out.last_hidden_state[:, 0]
        return vectors
    hidden: Tensor = probe.last_token.body(**arguments, use_cache=False).last_hidden_state
    if flash is None:
        return hidden[torch.arange(len(lengths)), torch.tensor(lengths, device=device) - 1]
    return hidden[0, passages.offsets[1:].long().to(device) - 1]


def probe_tokens(lengths: list[int], pad_id: int, vocab_size: int) -> tuple[Tensor, Tensor, Passages]:
    """Token ids and positions, (tokens,) each, of packed passages of these lengths; no token is padding."""
    positions = torch.cat([torch.arange(length) for length in lengths])
    ids = (positions % min(50, vocab_size - 1) + pad_id + 1) % vocab_size
    return ids, positions, Passages(lengths, torch.tensor([0, *accumulate(lengths)], dtype=torch.int32), max(lengths))


def relative_difference(padded: Tensor, packed: Tensor) -> float:
    """The largest difference relative to the largest value of the first one."""
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
