"""Experiments: from a configuration to results in runs/, for text and for feature vectors.

They do not know the command line, nor how results are evaluated and reported.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rerank.experiments.dataset import open_dataset
    from rerank.experiments.train import train_folds

__all__ = ["open_dataset", "train_folds"]


def __getattr__(name: str) -> Any:  # lazily, as both load torch
    import importlib

    modules = {"open_dataset": "rerank.experiments.dataset", "train_folds": "rerank.experiments.train"}
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(modules[name]), name)
