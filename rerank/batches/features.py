"""Batches of feature vectors: the vectors of all documents of a list, gathered by index, and their grid."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rerank.batches.batch import Batch
from rerank.data.letor.store import FeatureSet

SPLITMIX_STEP = np.uint64(0x9E3779B97F4A7C15)
"""The step from one state of splitmix64 to the next."""


class FeatureList(NamedTuple):
    """A training list: all documents of query number `query` of a set, in a random order given by `seed`.

    The model must not learn the file's order: ListMLE breaks ties of labels by the order of the documents.
    """

    features: FeatureSet
    query: int
    seed: tuple[int, ...]

    @property
    def query_id(self) -> str:
        return self.features.query_ids[self.query]

    @property
    def doc_ids(self) -> tuple[str, ...]:
        return self.features.doc_ids(self.query)


def make_feature_batch(lists: Sequence[FeatureList]) -> Batch[Tensor]:
    """The batch of lists of one set; its inputs are (documents, features) float32, without padding."""
    features = lists[0].features
    queries = np.array([drawn.query for drawn in lists])
    lengths = features.stops[queries] - features.starts[queries]
    rows = rows_of(features, queries)
    list_numbers = np.repeat(np.arange(len(lists)), lengths)
    seeds = np.array([hash(drawn.seed) % 2**64 for drawn in lists], dtype=np.uint64)
    keys = seeds[list_numbers] + rows.astype(np.uint64) * SPLITMIX_STEP
    rows = rows[np.lexsort((_mix(keys), list_numbers))]
    mask = torch.from_numpy(np.arange(lengths.max()) < lengths[:, None])
    labels = torch.zeros(mask.shape)
    labels[mask] = torch.from_numpy(features.labels[rows].astype(np.float32))
    return Batch(vectors(features, rows), labels, mask, tuple(drawn.query_id for drawn in lists))


def _mix(keys: np.ndarray) -> np.ndarray:
    """The numbers of splitmix64 for these states; one generator per list would take ten times as long."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        keys = (keys ^ (keys >> np.uint64(shift))) * np.uint64(factor)
    mixed: np.ndarray = keys ^ (keys >> np.uint64(31))
    return mixed


def rows_of(features: FeatureSet, queries: Sequence[int] | np.ndarray) -> np.ndarray:
    """The rows of the queries' documents in the set, query by query: (documents,)."""
    starts = features.starts[np.asarray(queries)]
    lengths = features.stops[np.asarray(queries)] - starts
    ends = lengths.cumsum()
    rows: np.ndarray = np.arange(ends[-1]) + np.repeat(starts - ends + lengths, lengths)
    return rows


def vectors(features: FeatureSet, rows: np.ndarray) -> Tensor:
    """(rows, features) float32, copied from the memory-mapped set."""
    return torch.from_numpy(np.take(features.features, rows, axis=0))
