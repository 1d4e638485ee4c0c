"""The shapes of what is recorded about a fold: its manifest, its log and its best passages.

A key of a manifest may be missing, as older versions did not write all; what is there has its type.
"""

from typing import Any, NotRequired, TypedDict

from rerank.data.folds import FoldRecord
from rerank.runs.cascade_table import CascadeFacts


class Outcome(TypedDict):
    """A run's hash and its means by measure."""

    sha256: str
    means: dict[str, float]


class RunFacts(TypedDict):
    """A run file and its hash."""

    run: str
    sha256: str


class FusionFacts(TypedDict):
    """How several runs were fused into the first stage; `weights` are those of the fold."""

    method: str
    runs: list[RunFacts]
    k: NotRequired[float]
    measure: NotRequired[str]
    weights: NotRequired[list[float]]


class FirstStageFacts(RunFacts):
    """The run that was re-ranked, its hash, and what it was fused from."""

    fusion: NotRequired[FusionFacts]


class ListsFacts(TypedDict):
    """The file of training lists and its hash."""

    file: str
    sha256: str


class Facts(TypedDict, total=False):
    """A manifest, by today's names."""

    fold: FoldRecord
    config: dict[str, dict[str, Any]]
    epochs: int
    best_epoch: int
    best_valid: float | None
    seconds: float
    peak_memory: int | None
    device: str
    device_name: str | None
    precision: str
    tf32: bool
    attention: str
    compiled: bool
    processes: int
    commit: str | None
    versions: dict[str, str | None]
    machine: dict[str, str]
    java: dict[str, str | None] | None
    texts: dict[str, int]
    documents: dict[str, str] | None
    first_stage: FirstStageFacts
    training_lists: ListsFacts
    features: dict[str, Any]
    pretraining: dict[str, Any] | None
    qrels: dict[str, str]
    outcome: dict[str, Outcome]
    tokens: int
    cascade: CascadeFacts


class Epoch(TypedDict):
    """A line of log.jsonl."""

    epoch: int
    loss: NotRequired[float]
    ndcg: NotRequired[float]
    smooth: NotRequired[float]
    seconds: NotRequired[float]
    documents: NotRequired[int]
    tokens: NotRequired[int]
    steps: NotRequired[dict[str, list[float]]]


class FoldEpoch(Epoch):
    """A line of the log of a fold, which validates."""

    valid: float


Passages = dict[str, dict[str, tuple[int, int]]]
"""query_id -> doc_id -> (the highest scoring passage, from 0; number of passages)."""
