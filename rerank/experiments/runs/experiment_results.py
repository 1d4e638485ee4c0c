"""Reads the files of an experiment: settings, logs, manifests and runs."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import NotRequired, TypedDict

from rerank.config import Config, FirstStageSettings, sections
from rerank.config.functions import Sections
from rerank.data.folds import SPLITS, judgments_of
from rerank.data.runs import read_qrels, read_run
from rerank.data.trec import first_documents
from rerank.data.types import Run
from rerank.evaluation.evaluate import values_of
from rerank.experiments.runs.layout import CollectionFolder, ExperimentFolder, FoldFolder
from rerank.experiments.runs.manifest import FoldManifest, judgments_hash, read_manifest
from rerank.experiments.runs.settings import differences, read_settings
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash
from rerank.utils.json_files import read_json_lines
from rerank.utils.registry import Setting


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
    """The files of a fold, each read when it is first used: empty or None if it is not written yet.

    Raises UserError for a damaged file.
    """

    folder: FoldFolder

    @property
    def name(self) -> str:
        return self.folder.name

    @functools.cached_property
    def history(self) -> list[FoldEpoch]:
        log = self.folder.log
        return list(read_json_lines(log, FoldEpoch, "expected the record of an epoch")) if log.is_file() else []

    @property
    def kept(self) -> FoldEpoch:
        """The record of the epoch whose weights were kept: the best one, the first of ties, as in training."""
        return max(self.history, key=lambda record: record["valid"])

    @property
    def first_stage(self) -> float | None:
        """The first stage's mean over the validation queries; None if unknown, and for feature vectors."""
        return self.kept.get("first_stage") if self.history else None

    @functools.cached_property
    def facts(self) -> FoldManifest | None:
        return read_manifest(self.folder.manifest, FoldManifest) if self.folder.manifest.is_file() else None

    @functools.cached_property
    def run(self) -> Run:
        return read_run(self.folder.test_run) if self.folder.finished else {}

    def validation_mean(self, measure: str) -> float | None:
        """The mean over the judged validation queries, from the manifest or computed; None for an unfinished fold."""
        if not (self.folder.finished and self.folder.valid_run.exists()):
            return None
        recorded = self.facts["outcome"].get("valid") if self.facts else None
        if recorded and measure in recorded["means"]:
            return recorded["means"][measure]
        qrels, run = read_qrels(self.folder.experiment.collection.qrels), read_run(self.folder.valid_run)
        query_ids = self.facts["fold"].valid if self.facts else list(run)
        return fmean(values_of(run, qrels, query_ids, measure).values())


@dataclass(frozen=True)
class ExperimentResults:
    """The results of an experiment; `first_stages` is a cache of runs that experiments of a collection share."""

    folder: ExperimentFolder
    first_stages: dict[Path, Run] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        return self.folder.name

    @functools.cached_property
    def settings(self) -> Sections:
        return read_settings(self.folder.settings)

    def setting(self, key: str) -> Setting | None:
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
        return any("features" in fold.facts for fold in self.folds if fold.facts)

    @property
    def depth(self) -> int:
        return int(self.setting("first_stage.depth") or FirstStageSettings().depth)

    @property
    def first_stage_file(self) -> Path:
        """The file of the re-ranked run; it may no longer exist."""
        collection = CollectionFolder(self.folder.path.parent)
        facts = (fold.facts for fold in self.folds if fold.facts)
        named = str(self.setting("first_stage.run") or "")
        recorded = next((found["first_stage"]["run"] for found in facts if "first_stage" in found), named)
        return run_of_manifest(collection, named, recorded) if recorded else collection.bm25_run()

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


def run_of_manifest(collection: CollectionFolder, named: str, recorded: str) -> Path:
    """The first stage's run that a manifest records; `named` is `--first-stage.run`, "" for BM25's run.

    If it was moved, it is found by the name that was given, and BM25's run in the folder of the collection.
    """
    here, there = Path(named), Path(recorded)
    if not named:  # the recorded name may have a hash of queries, which the settings do not tell
        return collection.path / there.name
    return here if here.is_file() and (here.absolute() == there or not there.is_file()) else there


def joined_test_runs(folds: Sequence[FoldFolder], config: Config) -> Run:
    """The test runs of finished folds as one run.

    Raises UserError, which names the fold and the difference, if a fold has other settings than `config`, other inputs
    than the first fold, other judgments than the collection's folder, no manifest, or a test run that differs from its
    manifest.
    """
    joined: Run = {}
    qrels = read_qrels(folds[0].experiment.collection.qrels)
    first: dict[str, str | None] = {}
    for fold in folds:
        facts = read_manifest(fold.manifest, FoldManifest)
        inputs = _inputs_of(facts)
        first = first or inputs
        different = differences(facts["config"], sections(config)).items()
        changed = [f"{key} = {old}, now {new}" for key, (old, new) in different]
        changed += [f"another {name} than fold {folds[0].name}" for name in inputs if inputs[name] != first[name]]
        for split, expected in facts["qrels"].items():
            if judgments_hash(judgments_of(split, facts["fold"], qrels)) != expected:
                changed.append(f"other judgments of its {SPLITS[split]} queries than now")
        tested = facts["outcome"].get("test")
        if tested is None or tested["sha256"] != file_hash(fold.test_run):
            changed.append(f"{fold.test_run.name} is not the file that {fold.manifest.name} records")
        if changed:
            remedy = "remove the folder to train the fold again"
            raise UserError(f"{fold.path}: not joined with the other folds: {'; '.join(changed)}; {remedy}")
        joined |= read_run(fold.test_run)
    return joined


def _inputs_of(facts: FoldManifest) -> dict[str, str | None]:
    """The hashes of what a fold was trained on, by name; None for what it did not use."""
    run, lists, documents = facts.get("first_stage"), facts.get("training_lists"), facts.get("documents")
    return {
        "first stage": run["sha256"] if run else None,
        "training lists": lists["sha256"] if lists else None,
        "documents": documents.get("fingerprint") if documents else None,
    }
