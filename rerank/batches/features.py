"""Queries of a feature set -> a batch: the vectors of their documents, gathered by index, and the grid."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rerank.batches.batch import Batch
from rerank.letor.features import FeatureSet


class FeatureList(NamedTuple):
    """A training list: all documents of query number `query` of a set."""

    of: FeatureSet
    query: int

    @property
    def query_id(self) -> str:
        """The query's id."""
        return self.of.query_ids[self.query]

    @property
    def doc_ids(self) -> tuple[str, ...]:
        """The ids of its documents, in their order."""
        return self.of.doc_ids(self.query)


class Vectors(NamedTuple):
    """The feature vectors of real documents only, so that batch norm sees no padding: (documents, features) float32."""

    features: Tensor

    def seeded(self, document_seeds: Tensor) -> "Vectors":
        """Itself: nothing here is drawn at random."""
        return self

    def to(self, device: torch.device) -> "Vectors":
        """The same on another device."""
        return Vectors(self.features.to(device))


def make_feature_batch(lists: Sequence[FeatureList]) -> Batch[Vectors]:
    """The batch of these lists, which are of one set."""
    features, queries = lists[0].of, [found.query for found in lists]
    labels, mask = make_grid(features, queries)
    inputs = Vectors(vectors(features, rows_of(features, queries)))
    return Batch(inputs, labels, mask, tuple(found.query_id for found in lists))


def make_grid(features: FeatureSet, queries: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The labels of these queries' documents, float32 and 0 on padding, and their mask: each (queries, documents)."""
    chosen = np.asarray(queries)
    lengths = features.ends[chosen] - features.begins[chosen]
    mask = torch.from_numpy(np.arange(lengths.max()) < lengths[:, None])
    labels = torch.zeros(mask.shape)
    labels[mask] = torch.from_numpy(features.labels[rows_of(features, queries)].astype(np.float32))
    return labels, mask


def rows_of(features: FeatureSet, queries: Sequence[int]) -> np.ndarray:
    """Where the documents of these queries stand in the set, query after query: (documents,)."""
    begins = features.begins[np.asarray(queries)]
    lengths = features.ends[np.asarray(queries)] - begins
    ends = lengths.cumsum()
    rows: np.ndarray = np.arange(ends[-1]) + np.repeat(begins - ends + lengths, lengths)
    return rows


def vectors(features: FeatureSet, rows: np.ndarray) -> Tensor:
    """(rows, features) float32, copied out of the set's file."""
    return torch.from_numpy(np.take(features.features, rows, axis=0))
