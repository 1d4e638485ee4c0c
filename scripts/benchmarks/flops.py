"""The number of useful floating-point operations of an encoder: those on real tokens, not on padding."""

from typing import Any

import numpy as np
from torch import nn

from rerank.models.packing import first_token_part, layers_of
from rerank.utils.errors import UserError

FORWARDS_OF_A_STEP = 3
"""The backward pass has two products for each of the forward pass: the gradients of the input and of the weight."""


def token_layers(encoder: Any) -> list[nn.Linear]:
    """The linear layers that process every token: those of the encoder's repeated layers.

    Raises UserError for an encoder without a list of layers.
    """
    layers = layers_of(encoder)
    if not layers:
        raise UserError(f"{type(encoder).__name__}: no list of layers is found in it; use another encoder")
    return [module for layer in layers for module in layer.modules() if isinstance(module, nn.Linear)]


def forward_flops(encoder: Any, passage_lengths: np.ndarray, packed: bool = False) -> float:
    """Operations of one forward pass over passages of these lengths; multiplications and additions count separately.

    A token costs 2 for each weight of `token_layers`; a passage of L tokens costs 4 L² H per layer for the two products
    of its attention. Not counted are embeddings, norms, softmax, pooler and the linear layer on top (under 1 %
    together), and relative positions. Local attention counts as global. In the last layer of a
    `packed` encoder with BERT's layout, what follows the projections to queries, keys and values counts for the first
    token of each passage only, as no more is needed.
    """
    config = encoder.config
    weights = sum(layer.weight.numel() for layer in token_layers(encoder))
    lengths = passage_lengths.astype(np.float64)
    saved, last = 0, layers_of(encoder)[-1]
    attention = 4 * config.hidden_size * config.num_hidden_layers * np.square(lengths).sum()
    if packed and first_token_part(last) is not last:  # BERT's layout
        parts = (last.attention.output, last.intermediate, last.output)
        first = [module for part in parts for module in part.modules() if isinstance(module, nn.Linear)]
        saved = sum(layer.weight.numel() for layer in first) * (lengths - 1).sum()
        attention -= 4 * config.hidden_size * (lengths * (lengths - 1)).sum()
    return float(2 * (weights * lengths.sum() - saved) + attention)
