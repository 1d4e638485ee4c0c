"""The stages of a pipeline: each turns queries, and the rankings of the stages below it, into a ranking.

A module with a new kind is imported here, which registers it.
"""

from rerank.stages.added_scores import Neighbours, SimilarQueries
from rerank.stages.bm25 import BM25
from rerank.stages.cross_encoder import CrossEncoder
from rerank.stages.dense import Dense, Feedback
from rerank.stages.fusion import Features, Fusion
from rerank.stages.late_interaction import LateInteraction
from rerank.stages.query_adapter import QueryAdapter
from rerank.stages.run_file import RunFile

__all__ = ["BM25", "CrossEncoder", "Dense", "Features", "Feedback", "Fusion", "LateInteraction", "Neighbours"]
__all__ += ["QueryAdapter", "RunFile", "SimilarQueries"]
