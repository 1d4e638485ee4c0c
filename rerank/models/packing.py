"""Makes models take packed passages instead of padded ones, if both give the same values."""

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from rerank.batches.batch import Packed
from rerank.models.packed_attention import IMPLEMENTATION, Passages, UnsupportedAttentionError, register_attention

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Tensors = tuple[Tensor, ...]

PROBE_LENGTHS = (160, 33, 7)
"""Tokens of the passages of a probe; the longest exceeds the attention windows of known encoders."""

TOLERANCE = 1e-3
"""Allowed relative difference of packed from padded values in float32; rounding gives about 1e-5."""


def probe_passages(pad_id: int, vocab_size: int, most: int, lengths: Sequence[int]) -> Packed:
    """Passages of one document, with these lengths, cut at `most` tokens; no token is padding."""
    lengths = [min(length, most) for length in lengths]
    places = torch.cat([torch.arange(length) for length in lengths])
    ids = (places % min(50, vocab_size - 1) + pad_id + 1) % vocab_size
    offsets = torch.tensor([0, *accumulate(lengths)])
    return Packed(ids, None, offsets, torch.zeros(len(lengths), dtype=torch.int64))


@torch.no_grad()
def relative_difference(expected: Tensor, found: Tensor) -> float:
    """The largest difference, relative to the largest value of `expected`."""
    if expected.shape != found.shape:
        return math.inf
    return float((expected - found).abs().max() / expected.abs().max().clamp_min(1e-6))


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Within the block the model is in evaluation mode; afterwards its mode is restored."""
    before = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(before)


def set_packed_attention(
    encoder: "PreTrainedModel", forward: Callable[..., object], values: Callable[[bool], Tensor]
) -> str:
    """Makes a Hugging Face model attend within packed passages; returns "", or the reason why it cannot.

    Its `forward` then takes `input_ids` and `position_ids`, (1, tokens), and the keyword `passages`. `values(packed)`
    computes a few passages, packed or padded. The model is left unchanged if they differ, as some models mix tokens
    outside their attention.
    """
    name = type(encoder).__name__
    if not getattr(encoder, "_supports_attention_backend", False):
        return f"the attention of {name} cannot be replaced"
    if "position_ids" not in inspect.signature(forward).parameters:
        return f"{name} takes no position ids"
    before, expected = encoder.config._attn_implementation, values(False)
    register_attention()
    encoder.set_attn_implementation(IMPLEMENTATION)
    try:
        error = relative_difference(expected, values(True))
        if error <= TOLERANCE:
            return ""
        reason = f"packing changes the vectors of {name} by {error:.1g}"
    except UnsupportedAttentionError as unsupported:
        reason = f"{name}: {unsupported}"
    encoder.set_attn_implementation(before)
    return reason


def layers_of(model: "PreTrainedModel") -> list[nn.Module]:
    """The layers of a Hugging Face model, first to last; empty if it has no ModuleList of them."""
    count = model.config.get_text_config().num_hidden_layers
    stacks = (m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == count)
    return list(next(stacks, ()))


def keep_first_tokens(layer: nn.Module) -> list[RemovableHandle]:
    """Makes the last layer return the first token of each packed passage, (passages, 1, hidden).

    In BERT's layout, everything after the projections to queries, keys and values is computed only for these tokens.
    Returns the hooks, so that they can be removed.
    """
    if first_token_part(layer) is layer:
        return [layer.register_forward_hook(_first_of_output, with_kwargs=True)]
    attention = layer.get_submodule("attention.self")
    return [
        attention.register_forward_pre_hook(_attend_with_first, with_kwargs=True),
        attention.register_forward_hook(_first_of_attended, with_kwargs=True),
        # `_first_of_attended` returns a pair, which is unpacked here as the two arguments of the projection.
        layer.get_submodule("attention.output").register_forward_pre_hook(
            lambda _, args: args[0] if isinstance(args[0], tuple) else None
        ),
    ]


def first_token_part(layer: nn.Module) -> nn.Module:
    """The module of the last layer after which only first tokens are needed: in BERT's layout the attention."""
    attention = getattr(layer, "attention", None)
    in_attention = all(hasattr(attention, name) for name in ("self", "output"))
    return layer.get_submodule("attention") if in_attention and hasattr(layer, "intermediate") else layer


def _attend_with_first(module: nn.Module, args: Tensors, kwargs: dict[str, Any]) -> tuple[Tensors, dict[str, Any]]:
    """Hook before the attention: only the first tokens need its result."""
    return args, kwargs if kwargs.get("passages") is None else kwargs | {"first_only": True}


def _first_of_attended(module: nn.Module, args: Tensors, kwargs: dict[str, Any], output: Tensors) -> tuple[object, ...]:
    """Hook after the attention: a pair, the first tokens of its result and of the residual."""
    passages: Passages | None = kwargs.get("passages")
    if passages is None:
        return output
    residual = args[0] if args else kwargs["hidden_states"]
    return ((passages.first_tokens(output[0]), passages.first_tokens(residual)), *output[1:])


def _first_of_output(
    module: nn.Module, args: Tensors, kwargs: dict[str, Any], output: Tensor | Tensors
) -> Tensor | Tensors:
    """Hook after a module: the first tokens of its output."""
    passages: Passages | None = kwargs.get("passages")
    if passages is None:
        return output
    if isinstance(output, tuple):
        return (passages.first_tokens(output[0]), *output[1:])
    return passages.first_tokens(output)
