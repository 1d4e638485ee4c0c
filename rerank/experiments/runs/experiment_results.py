"""Reads the files of an experiment: settings, logs, manifests and runs."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, NotRequired, TypedDict

from rerank.config import Config, FirstStageSettings, sections
from rerank.data.runs import read_qrels, read_run
from rerank.data.trec import first_documents
from rerank.data.types import Run
from rerank.evaluation.evaluate import values_of
from rerank.experiments.runs.layout import CollectionFolder, ExperimentFolder, FoldFolder
from rerank.experiments.runs.manifest import FoldManifest, read_manifest
from rerank.experiments.runs.settings import differences, read_settings
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash
from rerank.utils.json_files import read_json_lines


class FoldEpoch(TypedDict):
    """A line of log.jsonl."""

    epoch: int
    valid: float
    loss: NotRequired[float | None]
    ndcg: NotRequired[float | None]
    first_stage: NotRequired[float | None]
    seconds: NotRequired[float]
    documents: NotRequired[float]
    tokens: NotRequired[float]


@dataclass(frozen=True)
class FoldResults:
    """The files of a fold, each read when it is first used: empty if it is not written yet, UserError if damaged."""

    folder: FoldFolder

    @property
    def name(self) -> str:
        return self.folder.name

    @functools.cached_property
    def history(self) -> list[dict[str, Any]]:
        log = self.folder.log
        return list(read_json_lines(log, FoldEpoch, "expected the record of an epoch")) if log.is_file() else []

    @property
    def kept(self) -> dict[str, Any]:
        """The record of the epoch whose weights were kept: the best one, the first of ties, as in training."""
        return max(self.history, key=lambda record: record["valid"])

    @property
    def first_stage(self) -> float | None:
        """The first stage's mean over the validation queries; None if unknown, and for feature vectors."""
        return self.kept.get("first_stage") if self.history else None

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        return read_manifest(self.folder.manifest, FoldManifest) if self.folder.manifest.is_file() else {}

    @functools.cached_property
    def run(self) -> Run:
        return read_run(self.folder.test_run) if self.folder.finished else {}

    def validation_mean(self, measure: str) -> float | None:
        """The mean over the judged validation queries, from the manifest or computed; None for an unfinished fold."""
        if not (self.folder.finished and self.folder.valid_run.exists()):
            return None
        means: dict[str, float] = self.facts.get("outcome", {}).get("valid", {}).get("means", {})
        if measure in means:
            return means[measure]
        qrels, run = read_qrels(self.folder.experiment.collection.qrels), read_run(self.folder.valid_run)
        return fmean(values_of(run, qrels, self.facts["fold"]["valid"] if self.facts else list(run), measure).values())


@dataclass(frozen=True)
class ExperimentResults:
    """The results of an experiment; `first_stages` is a cache of runs that experiments of a collection share."""

    folder: ExperimentFolder
    first_stages: dict[Path, Run] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        return self.folder.name

    @functools.cached_property
    def settings(self) -> dict[str, dict[str, Any]]:
        return read_settings(self.folder.settings)

    def setting(self, key: str) -> Any:
        """The value of a setting such as loss.alpha; None if it is not set."""
        section, name = key.split(".")
        return self.settings.get(section, {}).get(name)

    @functools.cached_property
    def folds(self) -> list[FoldResults]:
        return [FoldResults(folder) for folder in self.folder.folds]

    @functools.cached_property
    def run(self) -> Run:
        """The test runs of all finished folds."""
        return {query_id: scores for fold in self.folds for query_id, scores in fold.run.items()}

    @property
    def has_features(self) -> bool:
        """Whether the experiment was trained on feature vectors, which have no texts and no first stage."""
        return any("features" in fold.facts for fold in self.folds)

    @property
    def depth(self) -> int:
        return int(self.setting("first_stage.depth") or FirstStageSettings().depth)

    @property
    def first_stage_file(self) -> Path:
        """The file of the re-ranked run; it may no longer exist."""
        if run := self.setting("first_stage.run"):
            return Path(run)
        collection = CollectionFolder(self.folder.path.parent)
        recorded = (fold.facts["first_stage"]["run"] for fold in self.folds if "first_stage" in fold.facts)
        if run := next(recorded, ""):  # its name may have a hash of queries, which the settings do not tell
            return collection.path / Path(run).name
        return collection.bm25_run(FirstStageSettings(depth=self.depth))

    @functools.cached_property
    def first_stage(self) -> Run:
        """The candidates of the queries of finished folds; empty if the first stage's run is missing."""
        file = self.first_stage_file
        if self.run and file not in self.first_stages:
            self.first_stages[file] = read_run(file) if file.is_file() else {}
        tested = {q: scores for q, scores in self.first_stages.get(file, {}).items() if q in self.run}
        return first_documents(tested, self.depth)

    def candidates(self) -> Run:
        """The first stage's candidates; raises UserError if there are none."""
        if self.has_features:
            raise UserError(f"{self.name}: feature vectors have no first stage to compare with")
        if not self.first_stage:
            raise UserError(f"{self.name}: the first stage's run {self.first_stage_file} is missing; restore it")
        return self.first_stage


def joined_test_runs(folds: Sequence[FoldFolder], config: Config) -> Run:
    """The test runs of finished folds as one run.

    Raises UserError, which names the fold and the difference, if a fold has other settings than `config`, other inputs
    than the first fold, no manifest, or a test run that differs from its manifest.
    """
    joined: Run = {}
    first: dict[str, Any] = {}
    for fold in folds:
        facts = read_manifest(fold.manifest, FoldManifest)
        first = first or facts
        different = differences(facts["config"], sections(config)).items()
        changed = [f"{key} = {old}, now {new}" for key, (old, new) in different]
        for name, key in (("first_stage", "sha256"), ("training_lists", "sha256"), ("documents", "fingerprint")):
            if first.get(name, {}).get(key) != facts.get(name, {}).get(key):
                changed.append(f"another {name.replace('_', ' ')} than fold {folds[0].name}")
        if facts["outcome"].get("test", {}).get("sha256") != file_hash(fold.test_run):
            changed.append(f"{fold.test_run.name} is not the file that {fold.manifest.name} records")
        if changed:
            remedy = "remove the folder to train the fold again"
            raise UserError(f"{fold.path}: not joined with the other folds: {'; '.join(changed)}; {remedy}")
        joined |= read_run(fold.test_run)
    return joined
