"""Evaluation: runs and judgments to measures, comparisons and fused runs. It does not know files of runs or models."""

from rerank.evaluation.compare import Comparison, compare
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.fusion import fuse_ranks, fuse_scores, tune_weights
from rerank.evaluation.measures import DEFAULT_MEASURES, measure_name, measure_names
from rerank.evaluation.significance import CORRECTIONS, TESTS

__all__ = [
    "CORRECTIONS",
    "DEFAULT_MEASURES",
    "TESTS",
    "Comparison",
    "compare",
    "evaluate",
    "fuse_ranks",
    "fuse_scores",
    "measure_name",
    "measure_names",
    "tune_weights",
]
