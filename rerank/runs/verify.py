"""`rerank verify`: checks the results of a run folder against its files and manifests."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rerank.data.folds import FINAL, read_folds
from rerank.data.trec import examples, read_qrels, read_run
from rerank.evaluation.measures import measure_name, measure_names
from rerank.evaluation.tables.table import aligned
from rerank.runs.layout import CollectionFolder, ExperimentFolder, FoldFolder
from rerank.runs.manifest import judgments_hash, outcome, read_manifest, recorded_fold
from rerank.runs.settings import differences, read_settings
from rerank.types import Fold, Qrels, Run
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash

MEASURE = "nDCG@20"
"""The measure that the table shows."""
TOLERANCE = 1e-9
FACTS = ("fold", "config", "qrels", "outcome", "best_valid")
"""The facts of a manifest that are checked; manifests of older versions do not have all of them."""


class Verification(NamedTuple):
    """A line for each fold and each all.run as text, and whether all of them hold."""

    table: str
    holds: bool

    def __str__(self) -> str:
        return self.table


@dataclass(frozen=True)
class FoldCheck:
    """What a fold is checked with: its folder, its queries, the collection's judgments, and the facts of its manifest.

    `outcomes` has the recomputed `outcome` of the runs that can be read, under "valid" and "test".
    """

    folder: FoldFolder
    fold: Fold
    qrels: Qrels
    facts: dict[str, Any] = field(default_factory=dict)
    outcomes: dict[str, Any] = field(default_factory=dict)

    def judged(self, part: str) -> Qrels:
        """The judgments of the fold's queries: "train", "valid" or "test"."""
        return {query_id: self.qrels[query_id] for query_id in getattr(self.fold, part) if self.qrels.get(query_id)}

    @property
    def validation_measures(self) -> list[str]:
        """The measure that chose the epoch; none if it was the loss."""
        measure = self.facts.get("config", {}).get("training", {}).get("measure", "loss")
        return [] if measure == "loss" or "best_valid" not in self.facts else [measure_name(measure)]


def verify(folder: Path | str) -> Verification:
    """Checks every fold and final model in runs/<collection>, in an experiment's folder, or in a fold's folder.

    Facts that a manifest does not have, because an older version wrote it, are noted and are no failure. An unfinished
    fold is no failure either, unless its queries are in all.run. Raises UserError if there is no fold, or if the
    collection's qrels.txt or folds.json cannot be read.
    """
    folder = Path(folder).absolute()
    collection, experiments = _experiments(folder)
    folds = {fold.name: fold for fold in read_folds(collection.folds)}
    qrels = read_qrels(collection.qrels)
    rows, notes, results = [["", MEASURE, ""]], defaultdict[str, list[str]](list), []
    for experiment in experiments:
        only_fold = folder != experiment.path and folder != collection.path
        has_all_run = experiment.all_run.is_file() and not only_fold
        fold_folders = {fold.path: fold for fold in [*experiment.models, *map(experiment.fold, folds)]}
        for path in [folder] if only_fold else sorted(fold_folders):
            name = f"{experiment.name}/{path.name}"
            if (not has_all_run or path.name == FINAL) and not _has_results(fold_folders[path]):
                rows.append([name, "", "not finished"])
                continue
            value, errors, unchecked = _check(fold_folders[path], folds, qrels)
            rows.append([name, value, "; ".join(errors) or "holds"])
            results.append(not errors)
            if unchecked:
                notes[", ".join(unchecked)].append(name)
        if has_all_run:
            errors = list(_all_run(experiment, folds))
            rows.append([f"{experiment.name}/{experiment.all_run.name}", "", "; ".join(errors) or "holds"])
            results.append(not errors)
    lines = [
        f"Not recorded or missing, so not checked: {facts} ({', '.join(names)})." for facts, names in notes.items()
    ]
    failed = results.count(False)
    lines.append(f"{failed} of {len(results)} fail." if failed else "Everything that is recorded holds.")
    return Verification("\n".join([aligned(rows), "", *lines]) + "\n", not failed)


def _experiments(folder: Path) -> tuple[CollectionFolder, list[ExperimentFolder]]:
    """The collection's folder, and the experiments to check."""
    parent = ExperimentFolder(folder.parent)
    if any(fold.path == folder and _has_results(fold) for fold in parent.models):
        return parent.collection, [parent]
    experiment = ExperimentFolder(folder)
    if experiment.models:
        return experiment.collection, [experiment]
    experiments = [ExperimentFolder(path) for path in sorted(folder.glob("*/"))]
    if not any(experiment.models for experiment in experiments):
        raise UserError(f"{folder}: no fold of an experiment here; expected runs/<collection>, or a folder in it")
    return CollectionFolder(folder), [experiment for experiment in experiments if experiment.models]


def _has_results(folder: FoldFolder) -> bool:
    return folder.finished or folder.manifest.exists()


def _check(folder: FoldFolder, folds: dict[str, Fold], qrels: Qrels) -> tuple[str, list[str], list[str]]:
    """MEASURE over the fold's test queries, the errors, and the facts that could not be checked."""
    if not folder.path.is_dir():
        return "", ["expected a folder, as its queries are in all.run, found none"], []
    if folder.name not in (*folds, FINAL):
        return "", [f"expected a fold of folds.json, {', '.join(folds)}; found {folder.name}"], []
    fold = recorded_fold(folder.manifest) if folder.name == FINAL else folds[folder.name]
    if fold is None:
        return "", [f"{folder.manifest.name}: expected the queries of the final model, in JSON; found none"], []
    check, errors = FoldCheck(folder, fold, qrels), list[str]()
    for errors_of in (_manifest, _files, _queries, _settings, _first_stage, _training_lists, _judgments, _outcome):
        try:
            errors += errors_of(check)
        except UserError as error:  # a file that cannot be read
            errors.append(str(error))
    value = f"{check.outcomes['test']['means'][MEASURE]:.4f}" if "test" in check.outcomes else ""
    return value, errors, _unchecked(check) if check.facts else []


def _manifest(check: FoldCheck) -> Iterator[str]:
    """Reads it into `check.facts`."""
    file = check.folder.manifest
    try:
        check.facts.update(read_manifest(file))
    except OSError as error:
        yield f"{file.name}: cannot be read: {error.strerror}"
    except ValueError as error:
        yield f"{file.name}: expected the facts of a run in JSON, got {error}"


def _files(check: FoldCheck) -> Iterator[str]:
    """Missing files; recomputes the outcome of the runs."""
    runs = {"valid": check.folder.valid_run, "test": check.folder.test_run}
    if check.folder.name == FINAL:
        runs = {"valid": check.folder.valid_run} if check.fold.valid else {}
    for file in (check.folder.log, *runs.values()):
        if not file.is_file():
            yield f"{file.name}: expected a file, found none"
    for part, run in runs.items():
        if run.is_file():
            recorded = _recorded_means(check, part)
            measures = [*recorded, *(check.validation_measures if part == "valid" else []), MEASURE]
            check.outcomes[part] = outcome(run, check.judged(part), list(dict.fromkeys(measures)))


def _recorded_means(check: FoldCheck, part: str) -> dict[str, float]:
    means = check.facts.get("outcome", {}).get(part, {}).get("means", {})
    return dict(zip(measure_names(list(means)), means.values(), strict=True)) if means else {}


def _queries(check: FoldCheck) -> Iterator[str]:
    for part, expected in check.facts.get("fold", {}).items():
        found = getattr(check.fold, part)
        if part != "name" and list(found) != expected:
            yield f"folds.json, {part}: expected {len(expected)} queries ({examples(expected)}), found " + (
                f"{len(found)} ({examples(found)})" if set(found) != set(expected) else "another order"
            )


def _settings(check: FoldCheck) -> Iterator[str]:
    if "config" in check.facts:
        file = check.folder.experiment.settings
        for key, (found, expected) in differences(read_settings(file), check.facts["config"]).items():
            yield f"{file.name}, {key}: expected {expected}, found {found}"


def _first_stage_file(check: FoldCheck) -> tuple[Path, bool]:
    """The run that was re-ranked, and whether it belongs to the collection's folder."""
    path = Path(check.facts["first_stage"]["run"])
    given = check.facts.get("config", {}).get("first_stage", {}).get("run")
    return (path, False) if given else (check.folder.experiment.collection.path / path.name, True)


def _first_stage(check: FoldCheck) -> Iterator[str]:
    if "first_stage" in check.facts:
        path, in_collection = _first_stage_file(check)
        if path.is_file():
            yield from _same_hash(path.name, check.facts["first_stage"]["sha256"], file_hash(path))
        elif in_collection:
            yield f"{path.name}: expected the first stage's run, found none"


def _training_lists(check: FoldCheck) -> Iterator[str]:
    facts = check.facts.get("training_lists", {})
    if facts and (path := Path(facts["file"])).is_file():
        yield from _same_hash(path.name, facts["sha256"], file_hash(path))


def _judgments(check: FoldCheck) -> Iterator[str]:
    for part, expected in check.facts.get("qrels", {}).items():
        yield from _same_hash(f"qrels.txt, {part} queries", expected, judgments_hash(check.judged(part)))


def _outcome(check: FoldCheck) -> Iterator[str]:
    for part, found in check.outcomes.items():
        expected = _recorded_means(check, part)
        if expected:
            yield from _same_hash(f"{part}.run", check.facts["outcome"][part]["sha256"], found["sha256"])
        for name in check.validation_measures if part == "valid" else ():
            expected[name] = check.facts["best_valid"]
        changed = [name for name, mean in expected.items() if not abs(mean - found["means"][name]) <= TOLERANCE]
        for name in changed[:1]:
            others = f" (and {len(changed) - 1} other measures)" if len(changed) > 1 else ""
            values = f"expected {expected[name]:.6f}, found {found['means'][name]:.6f}"
            yield f"{part}.run, {name}: {values}{others}"


def _unchecked(check: FoldCheck) -> list[str]:
    """The facts that the manifest does not have, and a first stage's run from elsewhere that is missing."""
    missing = [fact for fact in FACTS if fact not in check.facts]
    if "first_stage" in check.facts:
        path, in_collection = _first_stage_file(check)
        missing += [] if in_collection or path.is_file() else [f"first_stage: {path}"]
    elif "features" not in check.facts:
        missing.append("first_stage")
    lists = check.facts.get("training_lists", {}).get("file")
    return [*missing, *([f"training_lists: {lists}"] if lists and not Path(lists).is_file() else [])]


def _all_run(experiment: ExperimentFolder, folds: dict[str, Fold]) -> Iterator[str]:
    """Whether all.run is the union of the folds' test runs."""
    try:
        found, expected = read_run(experiment.all_run), Run()
        for folder in map(experiment.fold, folds):
            if folder.finished:
                expected |= read_run(folder.test_run)
    except UserError as error:
        yield str(error)
        return
    changed = [query_id for query_id in {**expected, **found} if expected.get(query_id) != found.get(query_id)]
    if changed:
        yield f"expected the folds' test runs together, found {len(changed)} queries that differ: {examples(changed)}"


def _same_hash(name: str, expected: str, found: str) -> Iterator[str]:
    if expected != found:
        yield f"{name}: expected SHA-256 {expected[:12]}…, found {found[:12]}…"
