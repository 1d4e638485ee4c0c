"""Data: collections, runs, judgments, candidates, folds, tokens and vectors. Independent of batches and models."""
