"""The stages of a pipeline: each turns queries, and the rankings of the stages below it, into a ranking.

A module of this package that registers its settings with `@stage` needs no other change.
"""

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

__all__ = ["BM25", "CrossEncoder", "Dense", "Features", "Feedback", "Fusion", "LateInteraction", "Neighbours"]
__all__ += ["QueryAdapter", "RunFile", "SimilarQueries"]
