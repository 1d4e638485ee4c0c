"""What training measures on validation lists: the mean loss at the scores of a run or of a feature set."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rerank.batches.features import make_grid, rows_of
from rerank.data.letor.feature_set import FeatureSet
from rerank.training.gradients import Loss
from rerank.types import Candidates, Run


def mean_loss(run: Run, lists: Sequence[Candidates], loss: Loss) -> float:
    """The mean over the lists of their loss at the scores of a run."""
    losses = []
    for found in lists:
        scores = torch.tensor([[run[found.query_id][doc_id] for doc_id in found.doc_ids]])
        labels = torch.tensor([[float(label) for label in found.labels]])
        losses.append(float(loss(scores, labels, torch.ones_like(labels, dtype=torch.bool))))
    return sum(losses) / len(losses)


LISTS = 512
"""Lists whose losses are computed together."""


def mean_loss_of(features: FeatureSet, scores: Tensor, loss: Loss) -> float:
    """The mean over a set's lists of their loss at the scores of `score_features`."""
    total, done = 0.0, 0
    for begin in range(0, len(features.query_ids), LISTS):
        queries = np.arange(begin, min(begin + LISTS, len(features.query_ids)))
        lengths = features.stops[queries] - features.starts[queries]
        labels, mask = make_grid(features, rows_of(features, queries), lengths)
        documents = int(mask.sum())
        grid = torch.zeros(mask.shape).masked_scatter(mask, scores[done : done + documents])
        total += float(loss(grid, labels, mask).double().sum())
        done += documents
    return total / len(features.query_ids)
