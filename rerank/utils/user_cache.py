"""The user's cache folder, for what is made from files whose own folder may be read-only."""

import os
from pathlib import Path


def user_cache(name: str) -> Path:
    """The folder `name` of rerank's cache: $XDG_CACHE_HOME (or ~/.cache)/rerank/<name>."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rerank" / name
