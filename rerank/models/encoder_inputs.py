"""Turns passages into the keyword arguments of an encoder: packed, with their boundaries, or padded in groups."""

from typing import Any

import torch
from torch import Tensor

from rerank.batches.batch import Packed
from rerank.models.packed_attention import Passages, bucket_bounds

PADDED_SHARE = 0.75
"""Passages are padded together if the shortest has at least this share of the longest's tokens."""

LEAST_LONGEST = 512
"""Least length of the longest passage, in tokens, that FlashAttention is given; it skips the excess at no cost."""


def packed(inputs: Packed, first_position: int, flash: bool) -> dict[str, Any]:
    """The arguments for packed passages, (1, tokens) each; see `Passages` for `flash`."""
    ids, lengths, offsets = inputs.input_ids, inputs.lengths(), device_offsets(inputs)
    starts = torch.repeat_interleave(offsets[:-1], offsets.diff(), output_size=len(ids))
    places = (torch.arange(len(starts), device=ids.device) - starts)[None]
    arguments = {"input_ids": ids[None], "position_ids": places + first_position}
    if inputs.token_types is not None:
        arguments["token_type_ids"] = inputs.token_types[None]
    longest = max(LEAST_LONGEST, 1 << (max(lengths) - 1).bit_length())  # a power of 2
    return {**arguments, "passages": Passages(lengths, offsets, longest, flash)}


def device_offsets(inputs: Packed) -> Tensor:
    """The offsets of passages as int32 on the device of their ids."""
    given = inputs.device_offsets
    return inputs.offsets.to(inputs.input_ids.device, torch.int32) if given is None else given


def padded(inputs: Packed, pad_id: int) -> dict[str, Tensor]:
    """The arguments for padded passages, (passages, longest) each."""
    offsets = inputs.offsets.to(inputs.input_ids.device)
    places = torch.arange(max(inputs.lengths()), device=offsets.device).expand(len(offsets) - 1, -1)
    indices = offsets[:-1, None] + places
    mask = indices < offsets[1:, None]
    indices = indices.where(mask, 0)
    arguments = {"input_ids": inputs.input_ids[indices].where(mask, pad_id), "attention_mask": mask.long()}
    if inputs.token_types is not None:
        arguments["token_type_ids"] = inputs.token_types[indices].where(mask, 0)
    return arguments


def bucket_by_length(lengths: list[int]) -> list[list[int]]:
    """Indices of the lengths in groups to pad, longest first; see PADDED_SHARE.

    >>> bucket_by_length([100, 30, 400, 90])
    [[2], [0, 3], [1]]
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    return [order[first:stop] for first, stop in bucket_bounds([lengths[index] for index in order], PADDED_SHARE)]
