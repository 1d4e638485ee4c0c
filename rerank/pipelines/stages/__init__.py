"""The stages of a pipeline: each turns queries, and the rankings of the stages below it, into a ranking.

A new stage is a module of this package that registers its settings with `@stage`; nothing else changes.
"""

from rerank.pipelines.stages.bm25 import BM25Stage
from rerank.pipelines.stages.composition import Stages
from rerank.pipelines.stages.cross_encoder import CrossEncoderStage
from rerank.pipelines.stages.dense import DenseStage
from rerank.pipelines.stages.features import FeaturesStage
from rerank.pipelines.stages.feedback import FeedbackStage
from rerank.pipelines.stages.fusion import FusionStage
from rerank.pipelines.stages.late_interaction import LateInteractionStage
from rerank.pipelines.stages.neighbours import NeighboursStage
from rerank.pipelines.stages.query_adapter import QueryAdapterStage
from rerank.pipelines.stages.run_file import RunFileStage
from rerank.pipelines.stages.similar_queries import SimilarQueriesStage
from rerank.pipelines.stages.sparse import SparseStage
from rerank.pipelines.stages.trained_encoder import TrainedEncoderStage

__all__ = ["BM25Stage", "CrossEncoderStage", "DenseStage", "FeaturesStage", "FeedbackStage", "FusionStage"]
__all__ += ["LateInteractionStage", "NeighboursStage", "QueryAdapterStage", "RunFileStage", "SimilarQueriesStage"]
__all__ += ["SparseStage", "Stages", "TrainedEncoderStage"]
