"""Evaluation: measures, comparisons and fusion of runs. Independent of files and models."""
