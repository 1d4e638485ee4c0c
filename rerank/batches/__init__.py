"""Batches: lists of documents as tensors, from sampling and passages to micro-batches. Independent of models."""
