"""What a run was made with, written beside it: versions, device, settings, hashes of the inputs, the fold's queries."""

import hashlib
import importlib.metadata
import json
import platform
from pathlib import Path
from typing import Any

from rerank.files import replacing

PACKAGES = (
    "rerank",
    "torch",
    "transformers",
    "accelerate",
    "tokenizers",
    "pyserini",
    "ir_datasets",
    "pytrec_eval-terrier",
)


def write_manifest(path: Path, facts: dict[str, Any]) -> None:
    """Writes `facts` with the versions and the machine as JSON."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    machine = {"python": platform.python_version(), "system": platform.platform(), "processor": platform.machine()}
    with replacing(path) as aside:
        aside.write_text(
            json.dumps({**facts, "versions": versions, "machine": machine}, indent=1, ensure_ascii=False),
            encoding="utf-8",
        )


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
