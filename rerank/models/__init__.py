"""Models: cross-encoders for text and networks for feature vectors, and how candidates are scored with them.

They know nothing of losses, of training or of the files of a run.
"""

from rerank.models.checkpoints import open_cross_encoder, save_cross_encoder
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.feature_mlp import FeatureMLP, open_feature_mlp, save_feature_mlp
from rerank.models.memory import TokenBudget
from rerank.models.pooling import POOLINGS
from rerank.models.rankings import Ranked
from rerank.models.reranker import Reranker
from rerank.models.scoring import score_candidates

__all__ = [
    "POOLINGS",
    "CrossEncoder",
    "FeatureMLP",
    "Ranked",
    "Reranker",
    "TokenBudget",
    "open_cross_encoder",
    "open_feature_mlp",
    "save_cross_encoder",
    "save_feature_mlp",
    "score_candidates",
]
