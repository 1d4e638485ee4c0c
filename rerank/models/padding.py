"""Length-bucketed padding, for encoders that do not support packed attention."""

from typing import Any

import torch
from torch import Tensor

from rerank.batches.batch import Packed


def bucket_by_length(lengths: list[int]) -> list[list[int]]:
    """Indices of the lengths in groups, longest first; every length is at least three quarters of its group's longest.

    >>> bucket_by_length([100, 30, 400, 90])
    [[2], [0, 3], [1]]
    """
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if not groups or lengths[index] < 0.75 * lengths[groups[-1][0]]:
            groups.append([])
        groups[-1].append(index)
    return groups


def pad(inputs: Packed, pad_id: int) -> tuple[dict[str, Any], Tensor]:
    """The encoder's keyword arguments and the position ids, from 0: (passages, longest) each."""
    offsets = inputs.offsets.to(inputs.input_ids.device)
    positions = torch.arange(max(inputs.lengths()), device=offsets.device).expand(len(offsets) - 1, -1)
    indices = offsets[:-1, None] + positions
    mask = indices < offsets[1:, None]
    indices = indices.where(mask, 0)
    arguments = {"input_ids": inputs.input_ids[indices].where(mask, pad_id), "attention_mask": mask.long()}
    if inputs.token_types is not None:
        arguments["token_type_ids"] = inputs.token_types[indices].where(mask, 0)
    return arguments, positions
