"""The folder runs/: its layout, and the settings, manifests and results in it, compared and verified.

Knows nothing of models or of training; never imports torch.
"""

from rerank.runs.layout import CollectionFolder, ExperimentFolder, FoldFolder, PretrainingFolder
from rerank.runs.results import CollectionResults, read_results
from rerank.runs.verify import Verification, verify

__all__ = [
    "CollectionFolder",
    "CollectionResults",
    "ExperimentFolder",
    "FoldFolder",
    "PretrainingFolder",
    "Verification",
    "read_results",
    "verify",
]
