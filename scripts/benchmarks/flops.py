"""How many floating-point operations the encoder has to do: the useful ones, none for padding."""

from typing import Any

import numpy as np
from torch import nn

from rerank.errors import UserError
from rerank.models.packed_attention import weights_of_first_tokens

FORWARDS_OF_A_STEP = 3
"""A backward pass does each matrix product twice more: for the gradient of its input and of its weight."""


def token_layers(encoder: Any) -> list[nn.Linear]:
    """The linear layers that every token goes through: those of the encoder's repeated layers.

    Raises UserError for an encoder whose layers are not found.
    """
    count = encoder.config.num_hidden_layers
    for module in encoder.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    raise UserError(f"{type(encoder).__name__}: no list of {count} layers is found in it; use another encoder")


def forward_flops(encoder: Any, passage_lengths: np.ndarray, packed: bool = False) -> float:
    """Operations, a multiplication and an addition being two, of one forward pass over passages of these lengths.

    A token costs 2 for each weight of `token_layers`, a passage of L tokens 4 L² H a layer for the two products of its
    attention. Embeddings, norms, softmax, pooler and the dense layer on top are not counted (under 1 % together), nor
    what relative positions cost. A local attention is counted as if it were global. A `packed` encoder of BERT's kind
    takes the first token of each passage through its last feed-forward layer: what it saves is not counted.
    """
    config = encoder.config
    weights = sum(layer.weight.numel() for layer in token_layers(encoder))
    lengths = passage_lengths.astype(np.float64)
    saved = 0
    if packed:
        saved = sum(weight.numel() for weight in weights_of_first_tokens(encoder)) * (lengths - 1).sum()
    attention = 4 * config.hidden_size * config.num_hidden_layers * np.square(lengths).sum()
    return float(2 * (weights * lengths.sum() - saved) + attention)
