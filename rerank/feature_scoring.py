"""A model of feature vectors -> the scores of a set's documents, their run and their loss."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from rerank.batches.features import Vectors, make_grid, rows_of, vectors
from rerank.errors import UserError
from rerank.gradients import Loss
from rerank.letor.features import FeatureSet
from rerank.types import Qrels, Run

DOCUMENTS = 8192
"""Documents of a forward pass: 32 MB in each layer of 1024 units."""

LISTS = 512
"""Lists whose losses are computed together."""


def score_features(model: Any, features: FeatureSet, accelerator: Accelerator) -> Tensor:
    """(documents,) float32 scores on the CPU, query after query; raises UserError for one that is not finite."""
    rows = rows_of(features, range(len(features.query_ids)))
    model.eval()
    with torch.inference_mode(), accelerator.autocast():
        scores = torch.cat(
            [
                model(Vectors(vectors(features, rows[begin : begin + DOCUMENTS])).to(accelerator.device)).float().cpu()
                for begin in range(0, len(rows), DOCUMENTS)
            ]
        )
    if not scores.isfinite().all():
        place = int(scores.isfinite().int().argmin())
        query = int(np.searchsorted((features.ends - features.begins).cumsum(), place, side="right"))
        document = features.doc_ids(query)[int(rows[place] - features.begins[query])]
        raise UserError(
            f"query {features.query_ids[query]}, document {document}: the model's score is {float(scores[place])}; "
            "is it broken?"
        )
    return scores


def run_of(judged: Qrels, scores: Tensor) -> Run:
    """The scores of `score_features` by the ids of the set's judgments, which have its order."""
    values = scores.tolist()
    ends = np.cumsum([0, *map(len, judged.values())]).tolist()
    return {
        query_id: dict(zip(of_query, values[begin:end], strict=True))
        for (query_id, of_query), (begin, end) in zip(judged.items(), pairwise(ends), strict=True)
    }


def mean_loss_of(features: FeatureSet, scores: Tensor, loss: Loss) -> float:
    """The mean over a set's lists of their loss at the scores of `score_features`."""
    total, done = 0.0, 0
    for begin in range(0, len(features.query_ids), LISTS):
        queries = np.arange(begin, min(begin + LISTS, len(features.query_ids)))
        lengths = features.ends[queries] - features.begins[queries]
        labels, mask = make_grid(features, rows_of(features, queries), lengths)
        documents = int(mask.sum())
        grid = torch.zeros(mask.shape).masked_scatter(mask, scores[done : done + documents])
        total += float(loss(grid, labels, mask).double().sum())
        done += documents
    return total / len(features.query_ids)


def judgments(features: FeatureSet) -> Qrels:
    """The labels of a set's documents, query after query."""
    bounds: Iterable[tuple[int, int]] = zip(features.begins.tolist(), features.ends.tolist(), strict=True)
    return {
        query_id: dict(zip(features.doc_ids(query), features.labels[begin:end].tolist(), strict=True))
        for query, (query_id, (begin, end)) in enumerate(zip(features.query_ids, bounds, strict=True))
    }
