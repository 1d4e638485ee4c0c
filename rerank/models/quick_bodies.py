"""Makes a model of sentence-transformers quick on a CPU: in bf16, without padding, where that gains."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rerank.batches.batch import Packed
from rerank.models.encoder import positions
from rerank.models.encoder_inputs import packed, padded
from rerank.models.gpu import FARTHEST, SMALL, Precision, choose_precision
from rerank.models.packed_attention import IMPLEMENTATION, UnsupportedAttentionError, register_attention
from rerank.models.packing import PROBE_LENGTHS, TOLERANCE, probe_passages, relative_difference

CPU = torch.device("cpu")
TAKEN = {"input_ids", "attention_mask", "token_type_ids", "return_dict"}


def quicken(model: torch.nn.Module, precision: Precision) -> None:
    """Makes the encoder of a model on the CPU compute in `precision`.

    "auto" is bf16 where the processor multiplies it faster, for an encoder that is not SMALL and whose vectors stay the
    same but for rounding. In bf16 sums of residuals, layer norms and pooling are float32, and padding is left out.
    Raises UserError for a precision that CPUs do not have.
    """
    from transformers import PreTrainedModel

    chosen = choose_precision(precision, CPU, "precision")
    body = next((module for module in model.modules() if isinstance(module, PreTrainedModel)), None)
    if body is not None and chosen == "bf16" and (precision != "auto" or _gains_in_bf16(body)):
        _leave_out_padding(body)
        _compute_in_bf16(body)
    for module in model.modules():
        if type(module) is torch.nn.Linear:  # as a product reads it in memory: a short query takes a fifth less time
            module.weight.data = module.weight.data.t().contiguous().t()


def _leave_out_padding(body: Any) -> None:
    """Makes a Hugging Face encoder skip padding in `forward`.

    The output has the same last_hidden_state as before, (texts, tokens, hidden), but 0 on padding. A few texts are
    computed both ways; an encoder whose vectors differ, as one whose attention is its own, stays as it was.
    """
    parameters = inspect.signature(body.forward).parameters
    if not getattr(body, "_supports_attention_backend", False) or "position_ids" not in parameters:
        return
    attention, expected = body.config._attn_implementation, _vectors(body)
    register_attention()
    body.set_attn_implementation(IMPLEMENTATION)
    body.forward = _packing(body.forward, positions(body)[1])
    try:
        if relative_difference(expected, _vectors(body)) <= TOLERANCE:
            return
    except UnsupportedAttentionError:
        pass
    del body.forward
    body.set_attn_implementation(attention)


def _packing(own: Callable[..., Any], first_position: int) -> Callable[..., Any]:
    """A forward pass of the real tokens alone; one with other arguments than ids, mask and token types is as before."""

    @functools.wraps(own)
    def forward(**given: Any) -> Any:
        if not {"input_ids", "attention_mask"} <= given.keys() <= TAKEN:
            return own(**given)
        real, types = given["attention_mask"].bool(), given.get("token_type_ids")
        offsets = torch.cat([real.new_zeros(1, dtype=torch.int64), real.sum(1).cumsum(0)])
        types = None if types is None else types[real]
        inputs = Packed(given["input_ids"][real], types, offsets, torch.arange(len(real)))
        out = own(**packed(inputs, first_position, flash=False)[0])
        hidden = out.last_hidden_state[0]
        grid = hidden.new_zeros(*real.shape, hidden.shape[-1])
        grid[real] = hidden
        return type(out)(last_hidden_state=grid)

    return forward


def _gains_in_bf16(body: Any) -> bool:
    """Whether a model is large enough to gain, and its vectors are those in float32 but for rounding."""
    if sum(weight.numel() for weight in body.parameters()) < SMALL:
        return False
    expected = _vectors(body)
    with torch.autocast("cpu", torch.bfloat16):
        return relative_difference(expected, _vectors(body)) <= FARTHEST


def _compute_in_bf16(body: Any) -> None:
    """Makes a model compute within autocast, with its linear layers' weights in bf16, so that no call casts them."""
    forward = body.forward
    for module in body.modules():
        if type(module) is torch.nn.Linear:
            module.to(torch.bfloat16)

    @functools.wraps(forward)
    def in_bf16(*arguments: Any, **others: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            out = forward(*arguments, **others)
        out.last_hidden_state = out.last_hidden_state.float()
        return out

    body.forward = in_bf16


@torch.inference_mode()
def _vectors(body: Any) -> Tensor:
    """(tokens, hidden) vectors of a few texts, which are padded."""
    vocab_size, pad_id = body.get_input_embeddings().num_embeddings, body.config.get_text_config().pad_token_id or 0
    inputs, _ = padded(probe_passages(pad_id, vocab_size, positions(body)[0], PROBE_LENGTHS), pad_id)
    vectors: Tensor = body(**inputs).last_hidden_state[inputs["attention_mask"].bool()].float()
    return vectors
