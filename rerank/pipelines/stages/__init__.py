"""The stages of a pipeline: each turns queries, and the rankings of the stages below it, into a ranking.

A module of this package that registers its settings with `@stage` needs no other change.
"""

from rerank.pipelines.stages.bm25 import BM25
from rerank.pipelines.stages.cross_encoder import CrossEncoder
from rerank.pipelines.stages.dense import Dense
from rerank.pipelines.stages.features import Features
from rerank.pipelines.stages.feedback import Feedback
from rerank.pipelines.stages.fusion import Fusion
from rerank.pipelines.stages.late_interaction import LateInteraction
from rerank.pipelines.stages.neighbours import Neighbours
from rerank.pipelines.stages.query_adapter import QueryAdapter
from rerank.pipelines.stages.run_file import RunFile
from rerank.pipelines.stages.similar_queries import SimilarQueries

__all__ = ["BM25", "CrossEncoder", "Dense", "Features", "Feedback", "Fusion", "LateInteraction", "Neighbours"]
__all__ += ["QueryAdapter", "RunFile", "SimilarQueries"]
