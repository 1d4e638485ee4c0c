"""What the folder of a fitted pipeline records, each file read as its type: the manifest and the evidence."""

from pathlib import Path
from typing import Annotated, NotRequired, TypedDict

from msgspec import Meta

from rerank.config import CollectionSettings
from rerank.experiments.runs.layout import MANIFEST
from rerank.experiments.runs.manifest import read_manifest
from rerank.utils.errors import UserError
from rerank.utils.inside import check_inside
from rerank.utils.integrity import Record, changes
from rerank.utils.json_files import read_json

EVIDENCE = "evidence.json"
REMEDY = "fit the pipeline again"
Count = Annotated[int, Meta(ge=0)]


class FitInputs(TypedDict):
    """Everything that a fit depends on: settings, and hashes of what it reads.

    collection: the hashes of judgments, queries and folds, and of the commits of a Lucene index ("" without one).
    """

    stages: dict[str, dict[str, object]]
    documents: str
    encoders: dict[str, str]
    files: dict[str, str]
    language: str
    index: str
    seed: int
    precision: str
    measure: str
    collection: dict[str, str]


class PipelineFacts(TypedDict):
    """What a pipeline was fitted on, and where that is, by its path from the pipeline's folder; which stage answers.

    near: the similarities below which a query is far from all documents (`Fitted.near`).
    """

    answer: str
    collection: CollectionSettings
    index: str
    name: Annotated[str, Meta(pattern=r"^(?!\.\.?$)[^/\x00]+$")]
    folder: str
    places: dict[str, str]
    documents: str
    encoders: dict[str, str]
    inputs: FitInputs | None
    near: dict[str, float]


class PipelineManifest(TypedDict):
    """manifest.json."""

    pipeline: PipelineFacts
    files: Record
    versions: NotRequired[dict[str, str | None]]


class Gain(TypedDict):
    """A mean and what is gained over the best stage below; None for what was not measured."""

    mean: float | None
    se: float | None
    gain: float | None
    gain_se: float | None
    low: float | None
    high: float | None
    p: float | None
    far: float | None
    far_low: float | None
    far_high: float | None


class StageRow(Gain):
    """What is recorded of a stage."""

    name: str
    kind: str
    of: list[str]
    ms: float | None
    own_ms: float | None
    trained_on: int
    kept: bool


class EvidenceRecord(TypedDict):
    """evidence.json (`evidence.evidence_of`).

    values: stage -> its values by held-out query.
    inner: part -> stage -> its values by query of the other parts, by which the stage of the part was selected.
    tested: part -> its queries.
    far_queries: the queries least similar to those of other parts.
    """

    measure: str
    answer: str
    budget: float | None
    judged: Count
    queries: Count
    parts: Count
    drawn: bool
    nested: Gain
    stages: Annotated[list[StageRow], Meta(min_length=1)]
    values: dict[str, dict[str, float]]
    inner: dict[str, dict[str, dict[str, float]]]
    tested: dict[str, list[str]]
    far_queries: list[str]
    older_documents: NotRequired[bool]


def read_pipeline_manifest(folder: Path) -> PipelineManifest:
    """The manifest of a pipeline's folder; raises UserError as `read_manifest`, and for links out of the folder."""
    check_inside(folder)
    return read_manifest(folder / MANIFEST, PipelineManifest)


def read_evidence(folder: Path, manifest: PipelineManifest | None = None) -> EvidenceRecord | None:
    """The evidence of a pipeline's folder; None if `fit` did not make the pipeline.

    `manifest` is that of the folder; None: it is read. Raises UserError if the evidence is not the file that the
    manifest records, or has another shape.
    """
    recorded = (manifest or read_pipeline_manifest(folder))["files"]
    if EVIDENCE not in recorded:
        return None
    if changed := next(changes(folder, {EVIDENCE: recorded[EVIDENCE]}), ""):
        raise UserError(f"{folder}: changed since it was written: {changed}; {REMEDY}")
    evidence = read_json(folder / EVIDENCE, EvidenceRecord, REMEDY)
    _check_names(evidence, folder / EVIDENCE)
    return evidence


def _check_names(evidence: EvidenceRecord, file: Path) -> None:
    """Raises UserError if the parts of an evidence do not belong together."""
    names, values = [row["name"] for row in evidence["stages"]], evidence["values"]
    measured = [row["name"] for row in evidence["stages"] if row["mean"] is not None or values.get(row["name"])]
    if evidence["answer"] not in names or "nested" not in values:
        raise UserError(f"{file}: expected the values of {evidence['answer']} and of nested; {REMEDY}")
    if any(values.get(name, {}).keys() != values["nested"].keys() for name in measured):
        raise UserError(f"{file}: expected the same queries of all stages; {REMEDY}")
    if evidence["nested"]["mean"] is not None and not (evidence["parts"] and evidence["queries"]):
        raise UserError(f"{file}: expected a mean of one query or more in one part or more; {REMEDY}")
