"""Evaluation: runs and judgments to measures, comparisons and fused runs. It does not know files of runs or models."""
