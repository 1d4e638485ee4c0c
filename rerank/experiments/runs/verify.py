"""`rerank verify`: checks the results of a run folder against its files and manifests."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from rerank.config import CollectionSettings, Config, TrainingSettings, sections
from rerank.config.functions import Sections, check_types
from rerank.data.folds import draw_queries, read_folds
from rerank.data.runs import read_qrels, read_run
from rerank.data.trec import examples
from rerank.data.types import FINAL, Fold, Qrels
from rerank.evaluation.measures import measure_name
from rerank.evaluation.tables import aligned
from rerank.experiments.runs.experiment_results import ExperimentResults
from rerank.experiments.runs.layout import CollectionFolder, ExperimentFolder, FoldFolder
from rerank.experiments.runs.manifest import FoldManifest, judgments_hash, outcome, read_manifest
from rerank.experiments.runs.settings import differences, read_settings
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash
from rerank.utils.inside import check_files_inside, check_inside, inside
from rerank.utils.integrity import changes
from rerank.utils.json_files import check_shape

MEASURE = "nDCG@20"
"""The measure in the table."""

SPLITS = ("train", "valid", "test")

TOLERANCE = 1e-9
"""Allowed difference of a recorded mean from the computed one."""


def verify(folder: Path) -> tuple[str, bool]:
    """Checks every fold and final model in runs/<collection>, in an experiment's folder, or in a fold's folder.

    Returns a table with a line for each fold and each all.run, and whether all of them hold. An unfinished fold is a
    failure only if there is an all.run. Raises UserError if there is no fold, or if the collection's qrels.txt or
    folds.json cannot be read.
    """
    folder = folder.absolute()
    collection, experiments = _experiments(folder)
    check_files_inside(collection.path)
    for experiment in experiments:
        inside(collection.path, experiment.name)
    folds = {fold.name: fold for fold in read_folds(collection.folds)}
    qrels = read_qrels(collection.qrels)
    checks: list[tuple[str, str, list[str] | None]] = []  # name, MEASURE, errors (None: not finished)
    for experiment in experiments:
        only_fold = folder not in (experiment.path, collection.path)
        has_all_run = experiment.all_run.is_file() and not only_fold
        models = [FoldFolder(folder)] if only_fold else {*experiment.models, *map(experiment.fold, folds)}
        for model in sorted(models, key=lambda model: model.path):
            is_finished = _has_results(model) or (has_all_run and model.name != FINAL)
            value, errors = _check_fold(model, folds, qrels) if is_finished else ("", None)
            checks.append((f"{experiment.name}/{model.path.name}", value, errors))
        if has_all_run:
            checks.append((f"{experiment.name}/{experiment.all_run.name}", "", _check_all_run(experiment)))
    rows = [["", MEASURE, ""]]
    for name, value, errors in checks:
        rows.append([name, value, "not finished" if errors is None else "; ".join(errors) or "holds"])
    finished = [errors for *_, errors in checks if errors is not None]
    failed = sum(map(bool, finished))
    line = f"{failed} of {len(finished)} fail." if failed else "Everything that is recorded holds."
    return f"{aligned(rows)}\n\n{line}\n", not failed


def _experiments(folder: Path) -> tuple[CollectionFolder, list[ExperimentFolder]]:
    """The collection's folder, and the experiments to check."""
    parent, experiment = ExperimentFolder(folder.parent), ExperimentFolder(folder)
    if any(fold.path == folder and _has_results(fold) for fold in parent.models):
        return parent.collection, [parent]
    if experiment.models:
        return experiment.collection, [experiment]
    experiments = [path for path in map(ExperimentFolder, sorted(folder.glob("*/"))) if path.models]
    if not experiments:
        raise UserError(f"{folder}: no fold of an experiment here; expected runs/<collection>, or a folder in it")
    return CollectionFolder(folder), experiments


def _has_results(folder: FoldFolder) -> bool:
    return folder.finished or folder.manifest.exists()


def _check_fold(folder: FoldFolder, folds: Mapping[str, Fold], qrels: Qrels) -> tuple[str, list[str]]:
    """MEASURE over the test queries of a fold, "" for the final model, and the errors."""
    if folder.name not in (*folds, FINAL):
        return "", [f"expected a fold of folds.json, {', '.join(folds)}; found {folder.name}"]
    value, errors = "", list[str]()
    try:
        check_inside(folder.path)
        facts = read_manifest(folder.manifest, FoldManifest)
        facts["config"] = _with_defaults(facts["config"], folder.manifest)
        fold = facts["fold"]
        judged = {split: {q: qrels[q] for q in getattr(fold, split) if qrels.get(q)} for split in SPLITS}
        errors += changes(folder.path, facts["files"])
        for split in facts["outcome"]:
            mean, changed = _outcome(folder, facts, split, judged[split])
            value, errors = (mean if split == "test" else value), errors + changed
        errors += _changed_inputs(folder, facts)
        if folder.name != FINAL:  # a final model has queries of its own
            errors += _changed_queries(facts["config"], folds[folder.name], fold)
        for name, expected in facts["qrels"].items():
            errors += _same_hash(f"qrels.txt, {name} queries", expected, judgments_hash(judged[name]))
        file = folder.experiment.settings
        for key, (found, recorded) in differences(read_settings(file), facts["config"]).items():
            errors.append(f"{file.name}, {key}: expected {recorded}, found {found}")
    except UserError as error:
        errors.append(str(error).removeprefix(f"{folder.path}/"))
    return value, errors


def _with_defaults(config: Sections, manifest: Path) -> Sections:
    """The settings of a manifest; a missing one has its default. Raises UserError for a value of a wrong type."""
    try:
        check_types(config)
    except ValueError as error:
        raise UserError(f"{manifest}: {error}; restore the file that `rerank train` wrote") from error
    return {section: values | config.get(section, {}) for section, values in sections(Config()).items()}


def _outcome(
    folder: FoldFolder, facts: FoldManifest, split: Literal["valid", "test"], judged: Qrels
) -> tuple[str, list[str]]:
    """MEASURE of a run, computed again, and the errors in its hash and its means."""
    run, recorded = folder.valid_run if split == "valid" else folder.test_run, facts["outcome"][split]
    expected, measure = dict(recorded["means"]), str(facts["config"]["training"]["measure"])
    if split == "valid" and measure != "loss":
        expected[measure_name(measure)] = facts["best_valid"]
    if not run.is_file():
        return "", _same_hash(run.name, recorded["sha256"], "")
    found = outcome(run, judged, expected)
    changed = [name for name, mean in expected.items() if not abs(mean - found["means"][name]) <= TOLERANCE]
    errors = [f"{run.name}, {m}: expected {expected[m]:.6f}, found {found['means'][m]:.6f}" for m in changed[:1]]
    mean = f"{found['means'][MEASURE]:.4f}" if MEASURE in expected else ""
    return mean, [*_same_hash(run.name, recorded["sha256"], found["sha256"]), *errors]


def _changed_inputs(folder: FoldFolder, facts: FoldManifest) -> Iterator[str]:
    """The errors in the first stage's run and in the file of training lists."""
    if run := facts.get("first_stage"):
        file, name = Path(run["run"]), run["run"]
        if not facts["config"]["first_stage"]["run"]:  # BM25's run; its folder may have been moved
            file, name = folder.experiment.collection.path / file.name, file.name
        yield from _same_hash(name, run["sha256"], file_hash(file) if file.is_file() else "")
    if lists := facts.get("training_lists"):
        file = Path(lists["file"])
        yield from _same_hash(lists["file"], lists["sha256"], file_hash(file) if file.is_file() else "")


def _changed_queries(config: Sections, whole: Fold, recorded: Fold) -> Iterator[str]:
    """An error if the queries drawn from a fold of folds.json differ from the queries of the manifest."""
    collection = check_shape(config["collection"], CollectionSettings)
    training = check_shape(config["training"], TrainingSettings)
    found = draw_queries(whole, collection.train_queries, training.validate_queries, training.seed)
    if changed := [split for split in SPLITS if getattr(found, split) != getattr(recorded, split)]:
        yield f"folds.json: expected the {' and '.join(changed)} queries of the manifest, found others"


def _same_hash(name: str, expected: str, found: str) -> list[str]:
    if not found:
        return [f"{name}: expected a file, found none"]
    return [] if expected == found else [f"{name}: expected SHA-256 {expected[:12]}…, found {found[:12]}…"]


def _check_all_run(experiment: ExperimentFolder) -> list[str]:
    """An error if all.run is not the union of the folds' test runs."""
    try:
        check_inside(experiment.path)
        found, expected = read_run(experiment.all_run), ExperimentResults(experiment).run
    except UserError as error:
        return [str(error)]
    differ = [query_id for query_id in {**expected, **found} if expected.get(query_id) != found.get(query_id)]
    said = f"expected the folds' test runs together, found {len(differ)} queries that differ: {examples(differ)}"
    return [said] if differ else []
