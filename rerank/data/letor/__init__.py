"""Feature vectors: SVMlight files, parsed once into memory-mapped stores.

Knows nothing of texts, batches or models. The names are imported when first used, as the parser needs pyarrow.
"""

import importlib
from typing import Any

_MODULES = {
    "FeatureSet": "feature_set",
    "LetorFold": "layouts",
    "fold_names": "layouts",
    "is_feature_source": "layouts",
    "open_fold": "layouts",
}

__all__ = ["FeatureSet", "LetorFold", "fold_names", "is_feature_source", "open_fold"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
