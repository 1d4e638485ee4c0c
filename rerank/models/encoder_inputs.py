"""Passages as the keyword arguments of an encoder: packed, with their boundaries, or padded in groups."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rerank.batches.batch import Packed

PADDED_SHARE = 0.75  # of the tokens of a group's longest passage, that every passage padded beside it has, or more

GPU_SHARE = 0.75
"""On a GPU, adjacent passages share a call of SDPA if the shortest has this share of the longest's tokens, or more."""

CPU_SHARE = 1.0  # on a CPU passages of equal length alone: a call costs little there, padding as much as tokens


class Bucket(NamedTuple):
    """Adjacent passages that share a call of SDPA, padded to `longest` tokens.

    real: (passages, longest), False on padding; places: (tokens,), where the tokens are in the flattened grid. Both are
    None if all passages have `longest` tokens.
    """

    tokens: int
    passages: int
    longest: int
    real: Tensor | None = None
    places: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Passages:
    """The boundaries of the passages of a forward pass.

    lengths: tokens of each; offsets: (passages + 1,) int32, passage p is tokens[offsets[p]:offsets[p + 1]]; flash:
    whether FlashAttention may be called, if there is a GPU and the precision is right (see `CrossEncoder.place`).
    """

    lengths: list[int]
    offsets: Tensor
    flash: bool = True

    @cached_property
    def buckets(self) -> list[Bucket]:
        """The passages as buckets, in their order; they are the same in every layer, so they are made once."""
        share = CPU_SHARE if self.offsets.device.type == "cpu" else GPU_SHARE
        return [_make_bucket(self, first, stop) for first, stop in bucket_bounds(self.lengths, share)]

    def first_tokens(self, hidden: Tensor) -> Tensor:
        """(passages, 1, hidden) of (1, tokens, hidden)."""
        return hidden.squeeze(0)[self.offsets[:-1].long()][:, None]  # hidden[0] copies its gradient


def bucket_bounds(lengths: list[int], share: float) -> list[tuple[int, int]]:
    """(first, stop) of runs of lengths whose shortest has at least this share of the longest."""
    bounds: list[tuple[int, int]] = []
    first, shortest, longest = 0, lengths[0], lengths[0]
    for index, length in enumerate(lengths):
        shortest, longest = min(shortest, length), max(longest, length)
        if shortest < share * longest:
            bounds.append((first, index))
            first, shortest, longest = index, length, length
    return [*bounds, (first, len(lengths))]


def _make_bucket(passages: Passages, first: int, stop: int) -> Bucket:
    """Passages first to stop - 1, without a copy between the devices."""
    lengths, offsets = passages.lengths[first:stop], passages.offsets[first : stop + 1]
    tokens, count, longest = sum(lengths), len(lengths), max(lengths)
    if tokens == count * longest:
        return Bucket(tokens, count, longest)
    longest = -(-longest // 8) * 8  # the kernels want rows of masks that are aligned
    sizes, device = offsets.diff(), offsets.device
    shifts = torch.arange(count, device=device) * longest - (offsets[:-1] - offsets[0])
    places = torch.arange(tokens, device=device) + torch.repeat_interleave(shifts, sizes, output_size=tokens)
    return Bucket(tokens, count, longest, torch.arange(longest, device=device) < sizes[:, None], places)


def packed(inputs: Packed, first_position: int, flash: bool) -> tuple[dict[str, Any], Tensor]:
    """The arguments of packed passages, and the places of tokens in their passages, from 0: (1, tokens) each."""
    ids, lengths, offsets = inputs.input_ids, inputs.lengths(), device_offsets(inputs)
    starts = torch.repeat_interleave(offsets[:-1], offsets.diff(), output_size=len(ids))
    places = (torch.arange(len(starts), device=ids.device) - starts)[None]
    arguments = {"input_ids": ids[None], "position_ids": places + first_position}
    if inputs.token_types is not None:
        arguments["token_type_ids"] = inputs.token_types[None]
    return {**arguments, "passages": Passages(lengths, offsets, flash)}, places


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
