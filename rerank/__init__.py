"""rerank fine-tunes cross-encoders to re-rank, with differentiable versions of the evaluation metric as the loss.

`import rerank` imports nothing else; each public name is imported from its module when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rerank import losses
    from rerank.config import Config
    from rerank.data.collections import Collection, open_collection
    from rerank.data.runs import read_qrels, read_run
    from rerank.data.trec import write_qrels, write_run
    from rerank.evaluation.compare import Comparison, compare
    from rerank.evaluation.evaluate import evaluate
    from rerank.evaluation.fusion import fuse_ranks, fuse_scores
    from rerank.evaluation.weights import tune_weights
    from rerank.experiments.train import train_folds as train
    from rerank.models.bi_encoder import BiEncoder
    from rerank.models.reranker import Reranker
    from rerank.pipelines import stages
    from rerank.pipelines.fit import fit
    from rerank.pipelines.pipeline import Pipeline
    from rerank.retrieval.bm25 import retrieve
    from rerank.utils.errors import UserError

__version__ = "0.2.0"

__all__ = ["BiEncoder", "Collection", "Comparison", "Config", "Pipeline", "Reranker", "UserError", "compare"]
__all__ += ["evaluate", "fit", "fuse_ranks", "fuse_scores", "losses", "open_collection", "read_qrels", "read_run"]
__all__ += ["retrieve", "stages", "train", "tune_weights", "write_qrels", "write_run"]

_PLACES = {
    "BiEncoder": "rerank.models.bi_encoder:BiEncoder",
    "Collection": "rerank.data.collections:Collection",
    "Comparison": "rerank.evaluation.compare:Comparison",
    "Config": "rerank.config:Config",
    "Pipeline": "rerank.pipelines.pipeline:Pipeline",
    "Reranker": "rerank.models.reranker:Reranker",
    "UserError": "rerank.utils.errors:UserError",
    "compare": "rerank.evaluation.compare:compare",
    "evaluate": "rerank.evaluation.evaluate:evaluate",
    "fit": "rerank.pipelines.fit:fit",
    "fuse_ranks": "rerank.evaluation.fusion:fuse_ranks",
    "fuse_scores": "rerank.evaluation.fusion:fuse_scores",
    "losses": "rerank.losses:",
    "open_collection": "rerank.data.collections:open_collection",
    "read_qrels": "rerank.data.runs:read_qrels",
    "read_run": "rerank.data.runs:read_run",
    "retrieve": "rerank.retrieval.bm25:retrieve",
    "stages": "rerank.pipelines.stages:",
    "train": "rerank.experiments.train:train_folds",
    "tune_weights": "rerank.evaluation.weights:tune_weights",
    "write_qrels": "rerank.data.trec:write_qrels",
    "write_run": "rerank.data.trec:write_run",
}
"""Public name -> module:name; without a name after the colon, the module itself."""


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'rerank' has no attribute '{name}'")
    module, _, attribute = _PLACES[name].partition(":")
    value = import_module(module)
    globals()[name] = getattr(value, attribute) if attribute else value
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
