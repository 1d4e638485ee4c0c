"""The stages of a pipeline: each turns queries, and the rankings of the stages below it, into a ranking.

A module of this package that registers its settings with `@stage` needs no other change.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rerank.stages.bm25 import BM25
    from rerank.stages.cross_encoder import CrossEncoder
    from rerank.stages.dense import Dense
    from rerank.stages.features import Features
    from rerank.stages.feedback import Feedback
    from rerank.stages.fusion import Fusion
    from rerank.stages.late_interaction import LateInteraction
    from rerank.stages.neighbours import Neighbours
    from rerank.stages.query_adapter import QueryAdapter
    from rerank.stages.run_file import RunFile
    from rerank.stages.similar_queries import SimilarQueries

__all__ = [
    "BM25",
    "CrossEncoder",
    "Dense",
    "Features",
    "Feedback",
    "Fusion",
    "LateInteraction",
    "Neighbours",
    "QueryAdapter",
    "RunFile",
    "SimilarQueries",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'rerank.stages' has no attribute '{name}'")
    from rerank.stages.base import stage_kinds

    kind = next(kind for kind in stage_kinds().values() if kind.__name__ == name)
    return getattr(import_module(kind.__module__), name)
