"""A model of feature vectors -> the scores of a set's documents, their run and their loss."""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from rerank.batches.features import Vectors, rows_of, vectors
from rerank.data.letor.feature_set import FeatureSet
from rerank.errors import UserError
from rerank.types import Qrels, Run

DOCUMENTS = 8192
"""Documents of a forward pass: 32 MB in each layer of 1024 units."""


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
        query = int(np.searchsorted((features.stops - features.starts).cumsum(), place, side="right"))
        document = features.doc_ids(query)[int(rows[place] - features.starts[query])]
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
