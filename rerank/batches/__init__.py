"""Batches: lists of documents as tensors, from sampling and passages to micro-batches. Knows nothing of models."""
