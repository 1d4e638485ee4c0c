"""What a run was made with and what it reached, written beside it: versions, device, settings, hashes of the inputs."""

import hashlib
import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

from rerank.data.trec import read_run
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.measures import MEASURES
from rerank.types import Qrels
from rerank.utils.files import atomic_write, file_hash

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
    """Writes `facts` with the versions, the git commit and the machine as JSON."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    machine = {"python": platform.python_version(), "system": platform.platform(), "processor": platform.machine()}
    with atomic_write(path) as tmp:
        tmp.write_text(
            json.dumps(
                {**facts, "versions": versions, "commit": source_commit(), "machine": machine},
                indent=1,
                ensure_ascii=False,
            ),
            encoding="utf-8",
        )


def judgments_hash(qrels: Qrels) -> str:
    """SHA-256 of judgments, whatever their order."""
    lines = sorted(f"{query_id} 0 {doc_id} {grade}\n" for query_id, of in qrels.items() for doc_id, grade in of.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def outcome(run: Path, qrels: Qrels, measures: Iterable[str] = MEASURES) -> dict[str, Any]:
    """The hash of a run's file, and the means over the queries of `qrels`, unrounded."""
    values = evaluate(qrels, read_run(run), measures)
    return {
        "sha256": file_hash(run),
        "means": {measure: fmean(of_query.values()) for measure, of_query in values.items()},
    }


def source_commit(root: Path = Path(__file__).parents[2]) -> str | None:
    """The git commit of the program's source tree, with "+changes" where files differ from it; None without one."""
    if not (root / ".git").exists():
        return None
    questions = (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
    try:
        commit, changes = (
            subprocess.run(
                ["git", "--no-optional-locks", *words], cwd=root, capture_output=True, text=True, timeout=10, check=True
            ).stdout.strip()
            for words in questions
        )
    except (OSError, subprocess.SubprocessError):  # no git here, or a tree that it does not trust
        return None
    return commit + "+changes" * bool(changes)
