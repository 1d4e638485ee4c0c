"""Padded passages, for encoders whose attention is their own: passages of like length together, so little is padded."""

from typing import Any

import torch
from torch import Tensor

from rerank.batches.batch import Packed


def bucket_by_length(lengths: list[int]) -> list[list[int]]:
    """The places of these lengths in groups, longest first; none is below three quarters of its group's longest.

    >>> of_like_length([100, 30, 400, 90])
    [[2], [0, 3], [1]]
    """
    groups: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        if not groups or lengths[place] < 0.75 * lengths[groups[-1][0]]:
            groups.append([])
        groups[-1].append(place)
    return groups


def pad(inputs: Packed, pad_id: int) -> tuple[dict[str, Any], Tensor]:
    """An encoder's keyword arguments for these passages, (passages, longest) each, and the places in the passages."""
    offsets = inputs.offsets.to(inputs.input_ids.device)
    positions = torch.arange(max(inputs.lengths()), device=offsets.device).expand(len(offsets) - 1, -1)
    places = offsets[:-1, None] + positions
    mask = places < offsets[1:, None]
    places = places.where(mask, 0)
    arguments = {"input_ids": inputs.input_ids[places].where(mask, pad_id), "attention_mask": mask.long()}
    if inputs.token_types is not None:
        arguments["token_type_ids"] = inputs.token_types[places].where(mask, 0)
    return arguments, positions
