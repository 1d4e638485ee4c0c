"""Data: collections, TREC run and qrels files, candidates, folds and token stores.

Knows nothing of batches or models, and never imports torch; ir_datasets is imported when a collection needs it.
"""
