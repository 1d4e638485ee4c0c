"""Makes models take packed passages instead of padded ones, if both give the same values."""

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from rerank.batches.batch import Packed
from rerank.models.gpu import Autocast, full_float32
from rerank.models.packed_attention import IMPLEMENTATION, Passages, UnsupportedAttentionError, register_attention

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Tensors = tuple[Tensor, ...]

PROBE_LENGTHS = (160, 33, 7)
"""Tokens of the passages of a probe; the longest exceeds the attention windows of known encoders."""

TOLERANCE = 1e-3
"""Allowed relative difference of packed from padded values in float32; rounding gives about 1e-5."""


class PackableModel(Protocol):
    """The attributes of a CrossEncoder that packing uses."""

    encoder: "PreTrainedModel"
    padding_reason: str
    pad_id: int
    max_length: int

    @property
    def head(self) -> nn.Module | None: ...

    @property
    def last_token(self) -> nn.Module | None: ...

    def __call__(self, inputs: Packed) -> Tensor: ...

    def vectors(self, inputs: Packed) -> Tensor: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...


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


ROUNDINGS = 4
"""Allowed error of packed passages over that of padded ones, both relative to float32, in the precision of a run."""

LARGEST_ROUNDING = 0.2
"""Most error that rounding explains, relative to the largest value; attention to other passages gives more."""

COMPARED = "padded, to be compared with packed passages"
"""The `padding_reason` of a model while it is compared."""


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


@torch.no_grad()
def pack(model: PackableModel) -> str:
    """Makes the encoder of a CrossEncoder take packed passages; returns "", or the reason why it cannot.

    The last layer then returns only the first token of each passage, (passages, 1, hidden), unless the head reads the
    last token. A check compares vectors; for an encoder with its own head, which may read other tokens, scores.
    """
    encoder, inputs = model.encoder, probe_of(model)
    own_head = model.head is None and model.last_token is None

    def values(packed: bool) -> Tensor:
        model.padding_reason = "" if packed else COMPARED
        found: Tensor = (model if own_head else model.vectors)(inputs)
        return found

    hooks: list[RemovableHandle] = []
    if model.last_token is None:
        layers = layers_of(encoder)
        if not layers:
            return f"{type(encoder).__name__} has no list of its layers"
        hooks = keep_first_tokens(layers[-1])
    body = encoder if model.last_token is None else encoder.base_model
    with evaluating(encoder):
        reason = set_packed_attention(encoder, body.forward, values)
    for hook in hooks if reason else ():
        hook.remove()
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


def packing_error(model: PackableModel, autocast: Autocast) -> str:
    """Why packed passages cannot be used on the model's device in this precision; "" if they can.

    The vectors of four passages are computed packed and padded in the precision of the run, and padded in float32.
    Packed vectors may be ROUNDINGS times as far from float32 as padded ones. The backward pass must also run.
    """
    # The lengths make SDPA on a GPU pad two passages together; the longest is first, as in groups.
    inputs, reason = probe_of(model, (160, 130, 33, 7)), model.padding_reason
    try:
        with evaluating(model.encoder):
            model.padding_reason = COMPARED
            with full_float32():
                exact = model.vectors(inputs)
            with autocast():
                padded = model.vectors(inputs)
                model.padding_reason = ""
                packed = model.vectors(inputs)
                first = next(weight for weight in layers_of(model.encoder)[0].parameters() if weight.requires_grad)
                torch.autograd.grad(packed.float().sum(), first, allow_unused=True)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError) as error:  # a kernel refuses its input, or an older torch an argument
        return str(error).strip().partition("\n")[0]
    finally:
        model.padding_reason = reason
    difference = relative_difference(exact, packed)
    allowed = min(LARGEST_ROUNDING, max(TOLERANCE, ROUNDINGS * relative_difference(exact, padded)))
    if not difference <= allowed:
        return f"its values differ from float32's by {difference:.1g}; rounding explains {allowed:.1g}"
    return ""


@torch.no_grad()
def rounding_error(model: PackableModel, autocast: Autocast) -> float:
    """The largest difference of vectors in this precision from float32, relative to the largest value."""
    inputs = probe_of(model)
    with evaluating(model.encoder):
        exact = model.vectors(inputs)
        with autocast():
            return relative_difference(exact, model.vectors(inputs))


def probe_of(model: PackableModel, lengths: Sequence[int] = PROBE_LENGTHS) -> Packed:
    """A few passages for a CrossEncoder, on its device."""
    vocab_size = model.encoder.config.get_text_config().vocab_size
    return probe_passages(model.pad_id, vocab_size, model.max_length, lengths).to(next(model.parameters()).device)
