"""A cross-encoder as a module that formats can trace: rows of one length in, scores out."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rerank.batches.batch import Packed
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.encoder_inputs import first_token_part
from rerank.models.packing import in_mode, layers_of
from rerank.utils.errors import UserError

IMPLEMENTATION = "rerank_rows"
TOKENS_PER_CALL = 1024
"""Tokens of one call of a graph, at most, if a passage is not longer: the values of a layer then stay in the cache."""

Rows = dict[str, np.ndarray]
"""The inputs of a graph by name: (passages, tokens) int64 each."""

Graph = Callable[[Rows], np.ndarray]
"""(passages,) float32 scores of rows of one length."""


class RowScores(nn.Module):
    """(passages,) scores of (passages, tokens) ids and, for some encoders, token types; all passages of one length."""

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """(passages,) float32 scores."""
        positions = torch.arange(input_ids.shape[1])[None].expand(input_ids.shape) + self.model.first_position
        arguments = {"input_ids": input_ids, "position_ids": positions}
        if token_type_ids is not None:
            arguments["token_type_ids"] = token_type_ids
        return self.model.row_scores(**arguments)


@contextmanager
def traceable(name: str, model: CrossEncoder) -> Iterator[RowScores]:
    """Within the block, the model as a module whose operations do not depend on the number or length of passages.

    Raises UserError for a model whose attention is not transformers' interface, and for a decoder.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    kind = type(model.encoder).__name__
    if model.last_token is not None:
        raise UserError(f"{name}: a {kind} is a decoder, which cannot be exported; expected an encoder such as BERT")
    if model.is_padded:
        raise UserError(
            f"{name}: a {kind} cannot be exported: {model.padding_reason}; expected an encoder such as BERT, RoBERTa, "
            "ELECTRA, DistilBERT, ModernBERT or XLM-RoBERTa"
        )
    AttentionInterface.register(IMPLEMENTATION, attend_rows)
    AttentionMaskInterface.register(IMPLEMENTATION, lambda *_, **__: None)
    before = model.encoder.config._attn_implementation
    hook = first_token_part(layers_of(model.encoder)[-1]).register_forward_hook(_first_tokens)
    model.encoder.set_attn_implementation(IMPLEMENTATION)
    try:
        with torch.no_grad(), warnings.catch_warnings(), in_mode(model, training=False):
            warnings.simplefilter("ignore")  # the tracers warn of every number that they take for a constant
            yield RowScores(model).eval()
    finally:
        hook.remove()
        model.encoder.set_attn_implementation(before)


def attend_rows(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Implements transformers' attention interface for rows without padding; a window is a mask at any length."""
    mask = None
    if sliding_window is not None:
        positions = torch.arange(query.shape[2])
        mask = (positions[:, None] - positions).abs() < sliding_window
    attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
    return attended.transpose(1, 2).contiguous(), None


def _first_tokens(module: nn.Module, arguments: Any, output: Any) -> Any:
    """The rest of the last layer needs the first token of each passage alone."""
    if isinstance(output, tuple):
        return (output[0][:, :1], *output[1:])
    return output[:, :1]


def example(token_types: bool) -> Rows:
    """Inputs to trace a graph with; numbers that are one would be taken for constants."""
    ids = np.arange(2 * 7, dtype=np.int64).reshape(2, 7) % 5 + 1
    return {"input_ids": ids} | ({"token_type_ids": np.zeros_like(ids)} if token_types else {})


def rows_of(inputs: Packed) -> Iterator[tuple[np.ndarray, Rows]]:
    """The passages in groups of one length, of TOKENS_PER_CALL at most: their numbers, (passages,), and the inputs."""
    offsets = inputs.offsets.cpu().numpy()
    columns = {"input_ids": inputs.input_ids.cpu().numpy()}
    if inputs.token_types is not None:
        columns["token_type_ids"] = inputs.token_types.cpu().numpy()
    lengths = np.diff(offsets)
    for length in np.unique(lengths).tolist():
        alike = np.flatnonzero(lengths == length)
        size = max(1, TOKENS_PER_CALL // length)
        for first in range(0, len(alike), size):
            numbers = alike[first : first + size]
            places = offsets[numbers, None] + np.arange(length)
            yield numbers, {name: values[places] for name, values in columns.items()}
