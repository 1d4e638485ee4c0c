"""The checks of one fold: its files, its runs and its manifest against each other and the collection."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rerank.data.folds import FINAL, draw_queries
from rerank.data.trec import examples
from rerank.data.types import Fold, Qrels
from rerank.evaluation.measures import measure_name, measure_names
from rerank.runs.layout import FoldFolder
from rerank.runs.manifest import judgments_hash, outcome, read_manifest, recorded_fold
from rerank.runs.manifest_facts import changed_facts, missing_facts, unrecorded_facts
from rerank.runs.settings import differences, read_settings
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash
from rerank.utils.integrity import as_record, changes

MEASURE = "nDCG@20"
"""The measure that the table shows."""
TOLERANCE = 1e-9


@dataclass(frozen=True)
class FoldCheck:
    """What a fold is checked with: its folder, its queries, the collection's judgments, and the facts of its manifest.

    `whole_fold` is that of folds.json.

    `outcomes` has the recomputed `outcome` of the runs that can be read, under "valid" and "test".
    """

    folder: FoldFolder
    whole_fold: Fold
    qrels: Qrels
    facts: dict[str, Any] = field(default_factory=dict)
    outcomes: dict[str, Any] = field(default_factory=dict)

    @property
    def fold(self) -> Fold:
        """The queries that trained and validated: those of the whole fold that the settings of the manifest draw."""
        config = self.facts.get("config", {})
        collection, training = config.get("collection", {}), config.get("training", {})
        counts = collection.get("train_queries", "all"), training.get("validate_queries", "all")
        return draw_queries(self.whole_fold, *counts, training.get("seed", 0))

    def judged(self, part: str) -> Qrels:
        """The judgments of the fold's queries: "train", "valid" or "test"."""
        return {query_id: self.qrels[query_id] for query_id in getattr(self.fold, part) if self.qrels.get(query_id)}

    @property
    def validation_measures(self) -> list[str]:
        """The measure that chose the epoch; none if it was the loss."""
        measure = self.facts.get("config", {}).get("training", {}).get("measure", "loss")
        return [] if measure == "loss" or "best_valid" not in self.facts else [measure_name(measure)]


class Checked(NamedTuple):
    """MEASURE over the test queries, the errors, the files that are gone, and the facts that no older version wrote."""

    value: str
    errors: list[str]
    gone: Sequence[str] = ()
    unrecorded: Sequence[str] = ()


def check_fold(folder: FoldFolder, folds: dict[str, Fold], qrels: Qrels) -> Checked:
    """Checks the files and the manifest of a fold, or of the final model, with the collection's folds and judgments."""
    if not folder.path.is_dir():
        return Checked("", ["expected a folder, as its queries are in all.run, found none"])
    if folder.name not in (*folds, FINAL):
        return Checked("", [f"expected a fold of folds.json, {', '.join(folds)}; found {folder.name}"])
    fold = recorded_fold(folder.manifest) if folder.name == FINAL else folds[folder.name]
    if fold is None:
        return Checked("", [f"{folder.manifest.name}: expected the queries of the final model, in JSON; found none"])
    check, errors = FoldCheck(folder, fold, qrels), list[str]()
    for errors_of in CHECKS:
        try:
            errors += errors_of(check)
        except UserError as error:  # a file that cannot be read
            errors.append(str(error))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            errors.append(f"{folder.manifest.name}: not the facts of a fold ({error!r})")
    value = f"{check.outcomes['test']['means'][MEASURE]:.4f}" if "test" in check.outcomes else ""
    return Checked(value, list(dict.fromkeys(errors)), _gone(check), unrecorded_facts(check.facts))


def _manifest(check: FoldCheck) -> Iterator[str]:
    """Reads it into `check.facts`."""
    file = check.folder.manifest
    try:
        check.facts.update(read_manifest(file, checked=False))
    except OSError as error:
        yield f"{file.name}: cannot be read: {error.strerror}"
        return
    except ValueError as error:
        yield f"{file.name}: expected the facts of a run in JSON, got {error}"
        return
    for what in (*missing_facts(check.facts), *changed_facts(file)):
        yield f"{file.name}: {what}"


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


def _contents(check: FoldCheck) -> Iterator[str]:
    """The checkpoint, the log and the passages."""
    yield from changes(check.folder.path, as_record(check.facts["files"])) if "files" in check.facts else ()


def _epochs(check: FoldCheck) -> Iterator[str]:
    """Whether the log has the epochs of the manifest, and its best one."""
    log, facts = check.folder.log, check.facts
    if not log.is_file() or "best_epoch" not in facts:
        return
    try:
        history = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        best = max(history, key=lambda record: record["valid"]) if "valid" in history[-1] else history[-1]
        logged = {"epochs": len(history), "best_epoch": best["epoch"], "best_valid": best.get("valid")}
    except (LookupError, TypeError, ValueError, RecursionError):
        yield f"{log.name}: expected a record per epoch in JSON"
        return
    for name, expected in logged.items():
        if name in facts and facts[name] != expected:
            yield f"{check.folder.manifest.name}, {name}: expected {expected}, as in {log.name}, found {facts[name]}"


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
    if given and not _fused(check):
        return path, False
    return check.folder.experiment.collection.path / path.name, True


def _fused(check: FoldCheck) -> list[dict[str, str]]:
    """The runs that were fused into the one that was re-ranked, and their hashes; none if it was not fused."""
    runs: list[dict[str, str]] = check.facts.get("first_stage", {}).get("fusion", {}).get("runs", [])
    return runs


def _first_stage(check: FoldCheck) -> Iterator[str]:
    if "first_stage" in check.facts:
        path, in_collection = _first_stage_file(check)
        if path.is_file():
            yield from _same_hash(path.name, check.facts["first_stage"]["sha256"], file_hash(path))
        elif in_collection:
            yield f"{path.name}: expected the first stage's run, found none"
        for source in _fused(check):
            if (file := Path(source["run"])).is_file():
                yield from _same_hash(str(file), source["sha256"], file_hash(file))


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


def _gone(check: FoldCheck) -> list[str]:
    """Files from elsewhere that the manifest names and that are gone."""
    try:
        path, in_collection = _first_stage_file(check) if "first_stage" in check.facts else (Path(), True)
        gone = [] if in_collection or path.is_file() else [f"first_stage: {path}"]
        gone += [f"first_stage: {source['run']}" for source in _fused(check) if not Path(source["run"]).is_file()]
        lists = check.facts.get("training_lists", {}).get("file")
        return [*gone, *([f"training_lists: {lists}"] if lists and not Path(lists).is_file() else [])]
    except (AttributeError, KeyError, TypeError, ValueError):  # an error of `_first_stage` or `_training_lists`
        return []


def _same_hash(name: str, expected: str, found: str) -> Iterator[str]:
    if expected != found:
        yield f"{name}: expected SHA-256 {expected[:12]}…, found {found[:12]}…"


CHECKS = (
    _manifest,
    _files,
    _contents,
    _epochs,
    _queries,
    _settings,
    _first_stage,
    _training_lists,
    _judgments,
    _outcome,
)
