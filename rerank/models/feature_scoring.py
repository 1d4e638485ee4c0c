"""Scores the documents of a feature set with a model."""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from rerank.batches.features import Vectors, rows_of, vectors
from rerank.data.letor.store import FeatureSet
from rerank.data.types import Qrels, Run
from rerank.models.scoring import check_finite

DOCUMENTS_PER_FORWARD = 8192
"""Each layer of 1024 units then takes 32 MB."""


def score_features(model: Any, features: FeatureSet, accelerator: Accelerator) -> Tensor:
    """(documents,) float32 scores on the CPU, query by query; raises UserError for a score that is not finite."""
    rows = rows_of(features, range(len(features.query_ids)))
    model.eval()
    with torch.inference_mode(), accelerator.autocast():
        scores = torch.cat(
            [
                model(Vectors(vectors(features, rows[start : start + DOCUMENTS_PER_FORWARD])).to(accelerator.device))
                .float()
                .cpu()
                for start in range(0, len(rows), DOCUMENTS_PER_FORWARD)
            ]
        )
    if not scores.isfinite().all():
        first = int(scores.isfinite().int().argmin())
        query = int(np.searchsorted((features.stops - features.starts).cumsum(), first, side="right"))
        document = features.doc_ids(query)[int(rows[first] - features.starts[query])]
        check_finite(features.query_ids[query], document, float(scores[first]))
    return scores


def run_of(qrels: Qrels, scores: Tensor) -> Run:
    """The run of the scores of `score_features`; `qrels` are those of the feature set, in the same order."""
    values = scores.tolist()
    offsets = np.cumsum([0, *map(len, qrels.values())]).tolist()
    return {
        query_id: dict(zip(doc_ids, values[start:stop], strict=True))
        for (query_id, doc_ids), (start, stop) in zip(qrels.items(), pairwise(offsets), strict=True)
    }
