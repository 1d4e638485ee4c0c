"""A quicker forward pass for the encoder of a bi-encoder: without padding, in half precision, with faster products."""

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from rerank.batches.batch import Packed
from rerank.models.encoder import positions
from rerank.models.encoder_inputs import packed, padded
from rerank.models.fused import kernel_error, use_kernels
from rerank.models.gpu import AUTOCAST, FARTHEST, Precision, choose_precision, has_flash_attention
from rerank.models.packed_attention import IMPLEMENTATION, UnsupportedAttentionError, register_attention
from rerank.models.packing import PROBE_LENGTHS, TOLERANCE, probe_passages, relative_difference
from rerank.models.products import SMALL, take_faster_products

TAKEN = {"input_ids", "attention_mask", "token_type_ids", "return_dict"}  # by a forward pass without padding
Forward = Callable[..., Any]


def quicken(model: Any, precision: Precision) -> None:
    """Gives the encoder of sentence-transformers' model a quicker forward pass on a CPU or a CUDA GPU.

    On a GPU an encoder in float32 stays as it is. Raises UserError for a precision that the device does not have.
    """
    from transformers import PreTrainedModel

    device: torch.device = model.device
    half = AUTOCAST.get(choose_precision(precision, device, "precision"))
    body: Any = next((module for module in model.modules() if isinstance(module, PreTrainedModel)), None)
    if body is not None and (device.type == "cpu" or half):
        vocab_size, pad_id = body.get_input_embeddings().num_embeddings, body.config.get_text_config().pad_token_id or 0
        probe = probe_of(vocab_size, pad_id, positions(body)[0], device)
        expected = _vectors(body.forward, probe)
        if device.type == "cuda" and not kernel_error(device):
            use_kernels(body, device)
        quicken_body(body, _without_padding(body, expected, probe), half, precision == "auto", probe, expected)
    if device.type == "cpu":
        order_weights(model)


def quicken_body(
    body: Any,
    forward: Forward,
    half: torch.dtype | None,
    if_it_gains: bool,
    probe: dict[str, Any],
    expected: Tensor | None = None,
) -> None:
    """Makes an encoder use a forward pass, in half precision if that is not None.

    In it, layer norms and pooling are float32, and so are sums of residuals; in BERT's layout what kernels add and
    normalise is rounded once (see `rerank.models.fused`). It gains for an encoder that is not SMALL, and whose vectors
    of `probe` stay as `expected` but for rounding; by default these are computed.
    """
    if body.device.type == "cpu":
        take_faster_products(body)
        if not kernel_error(body.device):
            use_kernels(body, body.device)
    if half and (not if_it_gains or _gains(body, forward, probe, expected, half)):
        body.forward = _in_half(body, forward, half)
    elif body.device.type == "cpu":
        body.forward = forward


def order_weights(model: nn.Module) -> None:
    """Stores the weights of linear layers as a product on a CPU reads them: a short query takes a fifth less time."""
    for module in model.modules():
        if type(module) is nn.Linear:
            module.weight.data = module.weight.data.t().contiguous().t()


def without_padding(own: Forward, first_position: int, flash: bool) -> Forward:
    """A forward pass for padded texts that calls `own` with the `packed` real tokens.

    The output has the last_hidden_state, (texts, tokens, hidden), but 0 on padding. Arguments other than TAKEN go to
    `own` as they are.
    """

    @functools.wraps(own)
    def forward(**given: Any) -> Any:
        if not {"input_ids", "attention_mask"} <= given.keys() <= TAKEN:
            return own(**given)
        real, types = given["attention_mask"].bool(), given.get("token_type_ids")
        offsets = torch.cat([real.new_zeros(1, dtype=torch.int64), real.sum(1).cumsum(0)])
        types = None if types is None else types[real]
        inputs = Packed(given["input_ids"][real], types, offsets, torch.arange(len(real)))
        out = own(**packed(inputs, first_position, flash)[0])
        hidden = out.last_hidden_state[0]
        grid = hidden.new_zeros(*real.shape, hidden.shape[-1])
        grid[real] = hidden
        return type(out)(last_hidden_state=grid)

    return forward


def _without_padding(body: Any, expected: Tensor, probe: Any) -> Forward:
    """The forward pass of a Hugging Face encoder for the real tokens alone.

    An encoder whose `_vectors` are not as `expected`, or whose attention is its own, keeps its own forward pass.
    """
    own: Forward = body.forward
    takes_positions = "position_ids" in inspect.signature(own).parameters
    if not takes_positions or not getattr(body, "_supports_attention_backend", False):
        return own
    forward = without_padding(own, positions(body)[1], has_flash_attention(body.device))
    attention = body.config._attn_implementation
    register_attention()
    body.set_attn_implementation(IMPLEMENTATION)
    with contextlib.suppress(UnsupportedAttentionError):
        if relative_difference(expected, _vectors(forward, probe)) <= TOLERANCE:
            return forward
    body.set_attn_implementation(attention)
    return own


def _gains(body: Any, forward: Forward, probe: Any, expected: Tensor | None, half: torch.dtype) -> bool:
    """Whether a model is large enough to gain from a type, and its vectors are those in float32 but for rounding."""
    if sum(weight.numel() for weight in body.parameters()) < SMALL:
        return False
    exact = _vectors(forward, probe) if expected is None else expected
    with torch.autocast(body.device.type, half):
        return relative_difference(exact, _vectors(forward, probe)) <= FARTHEST


def _in_half(body: Any, forward: Forward, half: torch.dtype) -> Forward:
    """The forward pass within autocast, with the linear layers' weights in its type, so that no call casts them."""
    for module in body.modules():
        if type(module) is nn.Linear:
            module.to(half)

    @functools.wraps(forward)
    def in_half(*arguments: Any, **others: Any) -> Any:
        with torch.autocast(body.device.type, half):
            out = forward(*arguments, **others)
        out.last_hidden_state = out.last_hidden_state.float()
        return out

    return in_half


def probe_of(vocab_size: int, pad_id: int, most: int, device: torch.device) -> dict[str, Any]:
    """The arguments of a forward pass for a few texts of `most` tokens at most, which are padded."""
    passages = probe_passages(pad_id, vocab_size, most, PROBE_LENGTHS)
    return padded(passages.to(device), pad_id)[0]


@torch.inference_mode()
def _vectors(forward: Forward, probe: dict[str, Any]) -> Tensor:
    """(tokens, hidden) vectors of the probe."""
    vectors: Tensor = forward(**probe).last_hidden_state[probe["attention_mask"].bool()].float()
    return vectors
