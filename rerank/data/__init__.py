"""Data: collections, runs and judgments, candidates, folds, tokens and vectors. Knows nothing of batches or models."""
