"""Passages as the keyword arguments of an encoder: packed, or padded in groups of similar length.

The last layer of an encoder of packed passages gives the first token of each alone.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from rerank.batches.batch import Packed
from rerank.models.packed_attention import Passages, bucket_bounds

PADDED_SHARE = 0.75
"""Of the tokens of a group's longest passage, every passage that is padded beside it has this share, or more."""


def packed(inputs: Packed, first_position: int, flash: bool) -> tuple[dict[str, Any], Tensor]:
    """The arguments of packed passages, and the places of tokens in their passages, from 0: (1, tokens) each.

    `first_position` is the position id of a passage's first token; `flash` is that of `Passages`.
    """
    ids, lengths, offsets = inputs.input_ids, inputs.lengths(), device_offsets(inputs)
    starts = torch.repeat_interleave(offsets[:-1], offsets.diff(), output_size=len(ids))
    places = (torch.arange(len(starts), device=ids.device) - starts)[None]
    arguments = {"input_ids": ids[None], "position_ids": places + first_position}
    if inputs.token_types is not None:
        arguments["token_type_ids"] = inputs.token_types[None]
    return {**arguments, "passages": Passages(lengths, offsets, max(lengths), flash)}, places


def device_offsets(inputs: Packed) -> Tensor:
    """The offsets of passages as int32 beside their ids."""
    given = inputs.device_offsets
    return inputs.offsets.to(inputs.input_ids.device, torch.int32) if given is None else given


def padded(inputs: Packed, pad_id: int) -> tuple[dict[str, Any], Tensor]:
    """The arguments of padded passages, and the places of tokens in them, from 0: (passages, longest) each."""
    offsets = inputs.offsets.to(inputs.input_ids.device)
    places = torch.arange(max(inputs.lengths()), device=offsets.device).expand(len(offsets) - 1, -1)
    indices = offsets[:-1, None] + places
    mask = indices < offsets[1:, None]
    indices = indices.where(mask, 0)
    arguments = {"input_ids": inputs.input_ids[indices].where(mask, pad_id), "attention_mask": mask.long()}
    if inputs.token_types is not None:
        arguments["token_type_ids"] = inputs.token_types[indices].where(mask, 0)
    return arguments, places


def bucket_by_length(lengths: list[int]) -> list[list[int]]:
    """Indices of the lengths in groups to pad, longest first; see PADDED_SHARE.

    >>> bucket_by_length([100, 30, 400, 90])
    [[2], [0, 3], [1]]
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    return [order[first:stop] for first, stop in bucket_bounds([lengths[index] for index in order], PADDED_SHARE)]


def keep_first_tokens(layer: Any) -> list[RemovableHandle]:
    """Makes the last layer return the first token of each packed passage, (passages, 1, hidden).

    In BERT's layout, all that follows the attention of all tokens is computed for these tokens only: the projection of
    what is attended to, the norms and the feed-forward part. Returns the hooks, to be removed.
    """
    if not _has_bert_layout(layer):
        return [layer.register_forward_hook(_first_of_output, with_kwargs=True)]
    return [
        layer.attention.self.register_forward_hook(_cut_attended, with_kwargs=True),
        layer.attention.output.register_forward_pre_hook(_unpack),
    ]


def first_token_part(layer: Any) -> nn.Module:
    """The module of the last layer whose output is needed for these tokens only."""
    part: nn.Module = layer.attention if _has_bert_layout(layer) else layer
    return part


def _has_bert_layout(layer: Any) -> bool:
    """Whether a layer is attention, then parts that treat each token by itself.

    These are the projection of what is attended to, which has the layer's input as its residual, and a feed-forward
    part.
    """
    attention = getattr(layer, "attention", None)
    in_attention = all(hasattr(attention, name) for name in ("self", "output"))
    return in_attention and all(hasattr(layer, name) for name in ("intermediate", "output"))


def _cut_attended(module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
    """Hook of the attention: the first tokens of what is attended to, in a pair with those of the residual.

    The projection is not told the passages.
    """
    passages = kwargs.get("passages")
    if passages is None:
        return output
    attended, *rest = output
    residual = args[0] if args else kwargs["hidden_states"]
    return ((_first_tokens(attended, passages), _first_tokens(residual, passages)), *rest)


def _unpack(module: nn.Module, args: tuple[Any, Tensor]) -> tuple[Tensor, Tensor] | None:
    """Hook before the projection: its arguments are the pair of `_cut_attended`."""
    return args[0] if isinstance(args[0], tuple) else None


def _first_of_output(module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
    """Hook: the first tokens of what a module returns."""
    if kwargs.get("passages") is None:
        return output
    hidden, *rest = output if isinstance(output, tuple) else (output,)
    first = _first_tokens(hidden, kwargs["passages"])
    return (first, *rest) if isinstance(output, tuple) else first


def _first_tokens(hidden: Tensor, passages: Passages) -> Tensor:
    """(passages, 1, hidden) of (1, tokens, hidden)."""
    return hidden.squeeze(0)[passages.offsets[:-1].long()][:, None]  # hidden[0] copies its gradient
