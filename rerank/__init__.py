"""rerank fine-tunes cross-encoders to re-rank, with differentiable versions of the evaluation metric as the loss.

`import rerank` imports nothing else; each public name is imported from its module when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rerank import losses as losses
    from rerank.config import Config as Config
    from rerank.data.collections import Collection as Collection
    from rerank.data.collections import open_collection as open_collection
    from rerank.data.trec import read_qrels as read_qrels
    from rerank.data.trec import read_run as read_run
    from rerank.data.trec import write_qrels as write_qrels
    from rerank.data.trec import write_run as write_run
    from rerank.evaluation.compare import Comparison as Comparison
    from rerank.evaluation.compare import compare as compare
    from rerank.evaluation.evaluate import evaluate as evaluate
    from rerank.evaluation.fusion import fuse as fuse
    from rerank.experiments.train import train_folds as train
    from rerank.models.reranker import Reranker as Reranker
    from rerank.retrieval.bm25 import retrieve as retrieve

__version__ = "0.1.0"

_PLACES = {
    "Collection": "rerank.data.collections:Collection",
    "Comparison": "rerank.evaluation.compare:Comparison",
    "Config": "rerank.config:Config",
    "Reranker": "rerank.models.reranker:Reranker",
    "compare": "rerank.evaluation.compare:compare",
    "evaluate": "rerank.evaluation.evaluate:evaluate",
    "fuse": "rerank.evaluation.fusion:fuse",
    "losses": "rerank.losses:",
    "open_collection": "rerank.data.collections:open_collection",
    "read_qrels": "rerank.data.trec:read_qrels",
    "read_run": "rerank.data.trec:read_run",
    "retrieve": "rerank.retrieval.bm25:retrieve",
    "train": "rerank.experiments.train:train_folds",
    "write_qrels": "rerank.data.trec:write_qrels",
    "write_run": "rerank.data.trec:write_run",
}
"""Public name -> module:name; a module alone is the module itself."""

__all__ = [*_PLACES]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'rerank' has no attribute '{name}'")
    module, _, attribute = _PLACES[name].partition(":")
    value = import_module(module)
    globals()[name] = getattr(value, attribute) if attribute else value
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
