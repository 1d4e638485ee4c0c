"""Batches: lists of documents as tensors, from sampling and passages to micro-batches.

Knows nothing of models, losses or the training loop.
"""

from rerank.batches.batch import Batch, Packed, make_batch
from rerank.batches.features import FeatureList, Vectors, make_feature_batch
from rerank.batches.microbatches import make_microbatches, restore_order
from rerank.batches.passages import PassageBuilder
from rerank.batches.sampling import epoch_lists, epoch_queries

__all__ = [
    "Batch",
    "FeatureList",
    "Packed",
    "PassageBuilder",
    "Vectors",
    "epoch_lists",
    "epoch_queries",
    "make_batch",
    "make_feature_batch",
    "make_microbatches",
    "restore_order",
]
