"""Transforms of feature vectors in front of the network: logarithms, or quantiles of the training documents.

Trees see the order of a feature's values alone, a network their scale too. log1p: Qin et al. 2021, "Are Neural Rankers
still Outperformed by Gradient Boosted Decision Trees?". Quantiles: Gorishniy et al. 2021, "Revisiting Deep Learning
Models for Tabular Data".
"""

import numpy as np
import torch
from torch import Tensor

from rerank.batches.features import rows_of
from rerank.data.letor.store import FeatureSet

QUANTILES = 257
"""Quantiles of a feature: their 256 intervals are about as fine as the 255 bins of LightGBM's histograms."""

SAMPLE = 200_000
"""Documents whose values give the quantiles: all of a set, or as many at even distances."""


def log1p(features: Tensor) -> Tensor:
    """sign(x) log(1 + |x|) of every value."""
    return features.sign() * features.abs().log1p()


def training_quantiles(features: FeatureSet) -> Tensor:
    """(features, QUANTILES) float32 ascending: values of the set's documents, from the smallest to the largest."""
    rows = rows_of(features, range(len(features.query_ids)))
    if len(rows) > SAMPLE:
        rows = rows[evenly_spaced(len(rows), SAMPLE)]
    values = np.take(features.features, rows, axis=0).T.copy()
    values.sort(axis=1)
    return torch.from_numpy(np.ascontiguousarray(values[:, evenly_spaced(len(rows), QUANTILES)]))


def evenly_spaced(length: int, count: int) -> np.ndarray:
    """`count` positions from the first to the last of `length`, which repeat where there are fewer.

    >>> evenly_spaced(9, 3).tolist(), evenly_spaced(2, 3).tolist()
    ([0, 4, 8], [0, 0, 1])
    """
    positions: np.ndarray = np.arange(count, dtype=np.int64) * (length - 1) // (count - 1)
    return positions


def quantile_ranks(features: Tensor, quantiles: Tensor) -> Tensor:
    """The part of the training documents, from 0 to 1, below each value: (documents, features).

    Between two quantiles the part is interpolated; a value that equals several gets the middle of them. A feature that
    is constant in training is 0.5 for every document: nothing is known of other values.

    Args:
        features: (documents, features).
        quantiles: (features, quantiles) as `training_quantiles` gives them.
    """
    values, last = features.T.contiguous(), quantiles.shape[1] - 1
    below, up_to = (torch.searchsorted(quantiles, values, right=right) for right in (False, True))
    left, right = (below - 1).clamp(min=0), below.clamp(max=last)
    low, high = quantiles.gather(1, left) / 2, quantiles.gather(1, right) / 2  # halves: no difference overflows
    between = left + torch.where(high > low, (values / 2 - low) / (high - low), 0)
    ranks = torch.where(up_to > below, (below + up_to - 1) / 2, between) / last
    constant = quantiles[:, :1] == quantiles[:, -1:]
    return ranks.masked_fill(constant, 0.5).T
