"""Data: collections, TREC run and qrels files, candidates, folds and token stores.

Knows nothing of batches or models, and never imports torch; ir_datasets is imported when a collection needs it.
"""

from rerank.data.candidates import select_candidates
from rerank.data.collections import Collection, open_collection
from rerank.data.folds import make_folds, read_folds, write_folds
from rerank.data.sources import register
from rerank.data.trec import read_qrels, read_run, write_qrels, write_run

__all__ = [
    "Collection",
    "make_folds",
    "open_collection",
    "read_folds",
    "read_qrels",
    "read_run",
    "register",
    "select_candidates",
    "write_folds",
    "write_qrels",
    "write_run",
]
