"""Manifests: the settings, versions, device, hashes and results of a run."""

import hashlib
import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Literal, NotRequired, TypedDict, TypeVar

import xxhash

from rerank.config.functions import Sections
from rerank.data.runs import read_run
from rerank.data.types import Fold, Qrels
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.measures import DEFAULT_MEASURES
from rerank.utils.errors import UserError
from rerank.utils.files import check_output, file_hash, write_text
from rerank.utils.inside import inside
from rerank.utils.integrity import Record
from rerank.utils.json_files import check_shape, read_json, shown
from rerank.utils.plugins import plugin_versions

DISTRIBUTION = "ir-rerank"
"""The name of this package on PyPI; manifests call it rerank."""

PACKAGES = ("torch", "transformers", "accelerate", "tokenizers", "pyserini", "ir_datasets", "pytrec_eval-terrier")
"""The packages whose versions are recorded."""

FORMAT = 4
"""The format of manifests; others are refused."""

HASH = "manifest_hash"
"""The key of the manifest's own hash."""

REMEDY = "expected a manifest as rerank wrote it; restore the file"


Shape = TypeVar("Shape")


class Outcome(TypedDict):
    """The hash of a run, and its means."""

    sha256: str
    means: dict[str, float]


class RunFact(TypedDict):
    """The first stage's run."""

    run: str
    sha256: str


class ListsFact(TypedDict):
    """The file of training lists."""

    file: str
    sha256: str


class Hashed(TypedDict):
    """The hash of a file."""

    sha256: str


class RunManifest(TypedDict):
    """The manifest of a run that `rerank score` or `rerank fuse` wrote; its other facts depend on the command."""

    run: Hashed


class FoldManifest(TypedDict):
    """The manifest of a trained fold."""

    config: Sections
    fold: Fold
    best_valid: float
    outcome: dict[Literal["valid", "test"], Outcome]
    qrels: dict[Literal["train", "valid", "test"], str]
    files: Record
    first_stage: NotRequired[RunFact]
    training_lists: NotRequired[ListsFact]
    documents: NotRequired[dict[str, str]]
    features: NotRequired[dict[str, object]]
    epochs: NotRequired[int]
    best_epoch: NotRequired[int]
    seconds: NotRequired[float]
    peak_memory: NotRequired[int | None]
    precision: NotRequired[str]
    device: NotRequired[str]
    device_name: NotRequired[str | None]
    processes: NotRequired[int]
    versions: NotRequired[dict[str, str | None]]


def write_manifest(path: Path, facts: Mapping[str, object]) -> None:
    """Writes `facts` as JSON, with the versions, the git commit, the machine and a hash of everything."""
    own, packages = version(DISTRIBUTION) or version("rerank"), {name: version(name) for name in PACKAGES}
    machine = {"python": platform.python_version(), "system": platform.platform(), "processor": platform.machine()}
    about = {
        "format": FORMAT,
        "versions": {"rerank": own, **packages, **plugin_versions()},
        "commit": source_commit(),
        "machine": machine,
    }
    facts = json.loads(json.dumps({**facts, **about}))  # as `read_manifest` reads them, so that the hash is the same
    write_text(path, json.dumps({**facts, HASH: _hash(facts)}, indent=1, ensure_ascii=False))


def read_manifest(path: Path, shape: type[Shape]) -> Shape:
    """Reads the facts that `write_manifest` wrote, and checks their hash.

    Raises UserError, which names the file, if it cannot be read, is no manifest of this shape, has another format, or
    was changed since it was written.
    """
    facts = read_json(inside(path.parent, path.name), dict[str, object], REMEDY)
    if HASH not in facts:
        raise UserError(f"{path}: has no {HASH}; {REMEDY}")
    if facts.get("format") != FORMAT:
        raise UserError(
            f"{path}: expected format {FORMAT}, got {shown(facts.get('format'))}, which another version of rerank "
            "wrote; run the command again with a new folder"
        )
    if facts[HASH] != _hash(facts):
        raise UserError(f"{path}: was changed since it was written; {REMEDY}")
    try:
        return check_shape(facts, shape)
    except ValueError as error:
        raise UserError(f"{path}: {error}; {REMEDY}") from error


def _hash(facts: Mapping[str, object]) -> str:
    """XXH3 of all facts but HASH, independent of their order and of the layout of the file."""
    rest = {name: value for name, value in facts.items() if name != HASH}
    return xxhash.xxh3_128_hexdigest(json.dumps(rest, sort_keys=True).encode())


def version(distribution: str) -> str | None:
    """The version of an installed distribution; None without metadata, as for a source tree on the path."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def judgments_hash(qrels: Qrels) -> str:
    """SHA-256 of the judgments, independent of their order."""
    lines = sorted(f"{q} 0 {doc_id} {grade}\n" for q, grades in qrels.items() for doc_id, grade in grades.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def outcome(run: Path, qrels: Qrels, measures: Iterable[str] = DEFAULT_MEASURES) -> Outcome:
    """The hash of a run file, and the unrounded means over the queries of `qrels`."""
    means = {measure: fmean(values.values()) for measure, values in evaluate(qrels, read_run(run), measures).items()}
    return {"sha256": file_hash(run), "means": means}


def source_commit(root: Path = Path(__file__).parents[3]) -> str | None:
    """The git commit of the source tree, with "+changes" if files differ from it; None without a commit."""
    if not (root / ".git").exists():
        return None
    git = "git --no-optional-locks describe --always --exclude=* --abbrev=40 --dirty=+changes"  # the commit, not a tag
    try:
        return subprocess.run(
            git.split(), cwd=root, capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # git is missing, or does not trust the folder
        return None


def tag_of(out: Path) -> str:
    """The last column of the run `out`: its name without .run and .gz. Raises UserError if nothing is left."""
    name = out.name.encode(errors="replace").decode()  # a file name may not be UTF-8, but a run must be
    tag = "-".join(name.removesuffix(".gz").removesuffix(".run").split())
    if not tag:
        raise UserError(f"--out {out}: expected a name before .run, which is the last column of the run")
    return tag


def manifest_of(out: Path) -> Path:
    """The manifest of the run `out`; raises UserError if one of the two cannot be written."""
    check_output(out)
    manifest = out.with_name(f"{out.name}.json")
    check_output(manifest, "--out: its manifest")
    return manifest
