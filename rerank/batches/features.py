"""Queries of a feature set -> a batch: the vectors of their documents, gathered by index, and the grid."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rerank.batches.batch import Batch
from rerank.letor.features import FeatureSet


class FeatureList(NamedTuple):
    """A training list: all documents of query number `query` of a set, in an order that is drawn with `seed`.

    The file's order must not teach: ListMLE keeps documents of one label in the order in which it gets them.
    """

    of: FeatureSet
    query: int
    seed: tuple[int, ...]

    @property
    def query_id(self) -> str:
        """The query's id."""
        return self.of.query_ids[self.query]

    @property
    def doc_ids(self) -> tuple[str, ...]:
        """The ids of its documents, in the file's order."""
        return self.of.doc_ids(self.query)

    def rows(self) -> np.ndarray:
        """Where its documents stand in the set, in the drawn order: (documents,)."""
        begin, end = self.of.begins[self.query], self.of.ends[self.query]
        rows: np.ndarray = begin + np.random.default_rng(self.seed).permutation(end - begin)
        return rows


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
    rows = [found.rows() for found in lists]
    labels, mask = make_grid(lists[0].of, np.concatenate(rows), np.array(list(map(len, rows))))
    inputs = Vectors(vectors(lists[0].of, np.concatenate(rows)))
    return Batch(inputs, labels, mask, tuple(found.query_id for found in lists))


def make_grid(features: FeatureSet, rows: np.ndarray, lengths: np.ndarray) -> tuple[Tensor, Tensor]:
    """The labels of these rows, float32 and 0 on padding, and their mask: each (lists, documents), from the lengths."""
    mask = torch.from_numpy(np.arange(lengths.max()) < lengths[:, None])
    labels = torch.zeros(mask.shape)
    labels[mask] = torch.from_numpy(features.labels[rows].astype(np.float32))
    return labels, mask


def rows_of(features: FeatureSet, queries: Sequence[int] | np.ndarray) -> np.ndarray:
    """Where the documents of these queries stand in the set, query after query: (documents,)."""
    begins = features.begins[np.asarray(queries)]
    lengths = features.ends[np.asarray(queries)] - begins
    ends = lengths.cumsum()
    rows: np.ndarray = np.arange(ends[-1]) + np.repeat(begins - ends + lengths, lengths)
    return rows


def vectors(features: FeatureSet, rows: np.ndarray) -> Tensor:
    """(rows, features) float32, copied out of the set's file."""
    return torch.from_numpy(np.take(features.features, rows, axis=0))
