"""Batch: packed inputs without padding documents, and the (lists, documents) grid that losses work on."""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from rerank.data.types import Candidates

Inputs = TypeVar("Inputs")


class Packed(NamedTuple):
    """Concatenated passages of text, without padding.

    input_ids: (tokens,) int64; token_types: (tokens,) int64, or None for encoders without them;
    offsets: (passages + 1,) int64, passage p is input_ids[offsets[p]:offsets[p + 1]], always in the CPU's memory;
    documents: (passages,) int64, the number of each passage's document, ascending; every document has a passage;
    device_offsets: the offsets as int32 on the device of the ids, set by `to`.
    """

    input_ids: Tensor
    token_types: Tensor | None
    offsets: Tensor
    documents: Tensor
    device_offsets: Tensor | None = None

    def lengths(self) -> list[int]:
        """The number of tokens of each passage."""
        lengths: list[int] = self.offsets.diff().tolist()
        return lengths

    def take(self, passages: Sequence[int]) -> "Packed":
        """The passages with these indices, in this order; their documents keep their numbers."""
        chosen, bounds = torch.tensor(passages), self.offsets.tolist()
        tokens = torch.cat([torch.arange(bounds[passage], bounds[passage + 1]) for passage in passages])
        return Packed(
            self.input_ids[tokens],
            None if self.token_types is None else self.token_types[tokens],
            torch.cat([torch.zeros(1, dtype=torch.int64), self.offsets.diff()[chosen].cumsum(0)]),
            self.documents[chosen],
        )

    def to(self, device: torch.device) -> "Packed":
        """A copy on another device."""
        moved = {name: getattr(self, name) for name in ("input_ids", "token_types", "documents")}
        moved = {name: to_device(values, device) for name, values in moved.items() if values is not None}
        return self._replace(**moved, device_offsets=to_device(self.offsets.to(torch.int32), device))


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """A tensor on another device; a copy from the CPU to a CUDA GPU is asynchronous."""
    if device.type != "cuda" or values.is_cuda:
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


def join_packed(inputs: Sequence[Packed]) -> Packed:
    """Concatenates inputs on the CPU; the documents are numbered consecutively."""
    lengths = torch.cat([packed.offsets.diff() for packed in inputs])
    documents, before = [], 0
    for packed in inputs:
        documents.append(packed.documents + before)
        before = int(documents[-1][-1]) + 1
    types = [packed.token_types for packed in inputs if packed.token_types is not None]
    return Packed(
        torch.cat([packed.input_ids for packed in inputs]),
        torch.cat(types) if types else None,
        torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]),
        torch.cat(documents),
    )


class Batch(NamedTuple, Generic[Inputs]):
    """Lists of documents: flat inputs of the real documents, and their grid.

    labels: (lists, documents) float32, 0 on padding; mask: (lists, documents) bool, False on padding. The flat order of
    the documents is the order of the grid, row by row. `scored` means that the labels are a teacher's scores, not
    judgments. `first_scores`, (documents,) float32, are the standardised first-stage scores, or None.
    """

    inputs: Inputs
    labels: Tensor
    mask: Tensor
    query_ids: tuple[str, ...]
    scored: bool = False
    first_scores: Tensor | None = None

    def grid(self, flat: Tensor) -> Tensor:
        """Puts (documents,) values onto the (lists, documents) grid, 0 on padding."""
        mask = self.mask.to(flat.device)
        return flat.new_zeros(mask.shape).masked_scatter(mask, flat)

    def grades(self) -> Tensor:
        """The grades for NDCG: the labels, or a teacher's scores scaled to 0 to 1 in each list (0 if all are equal)."""
        if not self.scored:
            return self.labels
        lowest = self.labels.masked_fill(~self.mask, torch.inf).amin(dim=1, keepdim=True)
        spread = self.labels.masked_fill(~self.mask, -torch.inf).amax(dim=1, keepdim=True) - lowest
        return ((self.labels - lowest) / spread.masked_fill(spread == 0, 1)).masked_fill(~self.mask, 0)


Pairs = Sequence[tuple[str, str]]
"""The (query_id, doc_id) pairs to score."""


def make_batch(
    lists: Sequence[Candidates], inputs_of: Callable[[Pairs], Inputs], scored: bool = False
) -> Batch[Inputs]:
    """The batch of the lists; `inputs_of` builds the inputs of (query_id, doc_id) pairs."""
    lengths = torch.tensor([len(candidates.doc_ids) for candidates in lists])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    labels = torch.zeros(mask.shape)
    labels[mask] = torch.tensor([label for candidates in lists for label in candidates.labels], dtype=torch.float32)
    pairs = [(candidates.query_id, doc_id) for candidates in lists for doc_id in candidates.doc_ids]
    first_scores = [score for candidates in lists for score in candidates.first_scores]
    return Batch(
        inputs_of(pairs),
        labels,
        mask,
        tuple(candidates.query_id for candidates in lists),
        scored,
        torch.tensor(first_scores, dtype=torch.float32) if first_scores else None,
    )


def make_microbatches(lengths: Sequence[int], tokens: int, padded: bool = False) -> list[list[int]]:
    """Groups the indices of passages, longest first, into micro-batches of at most `tokens` tokens.

    `padded` also counts padding, for encoders that need it. A passage longer than `tokens` is a micro-batch of its own.

    >>> make_microbatches([5, 9, 30, 4], 10)
    [[2], [1], [0, 3]]
    """
    groups: list[list[int]] = []
    filled = longest = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        filled = longest * (len(groups[-1]) + 1) if padded and groups else filled + lengths[index]
        if not groups or filled > tokens:
            groups.append([])
            filled = longest = lengths[index]
        groups[-1].append(index)
    return groups


def restore_order(scores: Tensor, groups: list[list[int]]) -> Tensor:
    """Sorts scores that were computed in groups of indices by index: (passages,)."""
    indices = torch.tensor([index for group in groups for index in group], device=scores.device)
    return scores[indices.argsort()]
