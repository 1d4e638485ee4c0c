"""`rerank verify`: checks the results of a run folder against its files and manifests."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from rerank.config import CollectionSettings, Config, TrainingSettings, sections
from rerank.config.functions import Sections, check_types
from rerank.data.collections import open_collection
from rerank.data.folds import draw_queries, judgments_of, read_folds
from rerank.data.letor.layouts import fold_files
from rerank.data.records import source_hash
from rerank.data.runs import read_qrels, read_run
from rerank.data.trec import examples
from rerank.data.types import FINAL, Fold, Qrels
from rerank.evaluation.measures import measure_name
from rerank.evaluation.tables import aligned
from rerank.experiments.runs.experiment_results import ExperimentResults, run_of_manifest
from rerank.experiments.runs.layout import CollectionFolder, ExperimentFolder, FoldFolder
from rerank.experiments.runs.manifest import FoldManifest, RunManifest, judgments_hash, outcome, read_manifest
from rerank.experiments.runs.settings import differences, read_settings
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash, kept_hash
from rerank.utils.inside import check_files_inside, check_inside, inside
from rerank.utils.integrity import changes
from rerank.utils.json_files import check_shape

MEASURE = "nDCG@20"
"""The measure in the table."""

SPLITS = ("train", "valid", "test")

TOLERANCE = 1e-9
"""Allowed difference of a recorded mean from the computed one."""


class Check(NamedTuple):
    """A line of the table: MEASURE, the errors (None: not finished), and what could not be compared."""

    name: str
    value: str = ""
    errors: list[str] | None = None
    not_compared: Sequence[str] = ()


class Known(NamedTuple):
    """What results are compared with: folds, judgments, and the hashes of documents and files, each computed once.

    The folds have the same documents, and often the same feature files.
    """

    folds: Mapping[str, Fold]
    qrels: Qrels
    fingerprint_of: Callable[[str], str | None]
    hash_of: Callable[[Path], str]


def verify(folder: Path) -> tuple[str, bool]:
    """Checks every fold and final model in runs/<collection>, in an experiment's folder, or in a fold's folder.

    Returns a table with a line for each fold, each all.run, and each run in runs/<collection> with a manifest of its
    own (`rerank score`, `rerank fuse`), and whether all of them hold. An unfinished fold is a failure only if there is
    an all.run. Documents and feature files that are not on this machine are named below the table; they are no failure.
    Raises UserError if there is no fold, or if the collection's qrels.txt or folds.json cannot be read.
    """
    folder = folder.absolute()
    collection, experiments = _experiments(folder)
    check_files_inside(collection.path)
    for experiment in experiments:
        inside(collection.path, experiment.name)
    only_final = all(model.name == FINAL for experiment in experiments for model in experiment.models)
    has_folds = collection.folds.is_file() or not only_final  # the final model of feature vectors needs none
    folds = {fold.name: fold for fold in read_folds(collection.folds)} if has_folds else {}
    known = Known(folds, read_qrels(collection.qrels), functools.cache(_fingerprint), functools.cache(kept_hash))
    checks: list[Check] = []
    for experiment in experiments:
        only_fold = folder not in (experiment.path, collection.path)
        has_all_run = experiment.all_run.is_file() and not only_fold
        models = [FoldFolder(folder)] if only_fold else {*experiment.models, *map(experiment.fold, folds)}
        for model in sorted(models, key=lambda model: model.path):
            is_finished = _has_results(model) or (has_all_run and model.name != FINAL)
            name = f"{experiment.name}/{model.path.name}"
            checks.append(_check_fold(name, model, known) if is_finished else Check(name))
        if has_all_run:
            checks.append(Check(f"{experiment.name}/{experiment.all_run.name}", "", _check_all_run(experiment)))
    if folder == collection.path:
        manifests = [file for end in ("run", "run.gz") for file in folder.glob(f"*.{end}.json")]
        checks += [_check_run(manifest) for manifest in sorted(manifests)]
    return _as_text(checks), not any(check.errors for check in checks)


def _as_text(checks: Sequence[Check]) -> str:
    """The table, a line for each input that could not be compared, and a line that sums up."""
    rows = [["", MEASURE, ""]]
    for check in checks:
        said = "not finished" if check.errors is None else "; ".join(check.errors) or "holds"
        rows.append([check.name, check.value, said])
    missing = list(dict.fromkeys(what for check in checks for what in check.not_compared))
    end = "Everything that is recorded holds."
    if failed := sum(bool(check.errors) for check in checks):
        end = f"{failed} of {sum(check.errors is not None for check in checks)} fail."
    elif missing:
        end = f"All else that is recorded holds; {len(missing)} of the inputs could not be compared."
    lines = [*(f"{what}: is not on this machine: not compared" for what in missing), end]
    return f"{aligned(rows)}\n\n" + "".join(f"{line}\n" for line in lines)


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


def _check_fold(name: str, folder: FoldFolder, known: Known) -> Check:
    """MEASURE over the test queries of a fold, "" for the final model, the errors, and what could not be compared."""
    if folder.name not in (*known.folds, FINAL):
        return Check(name, "", [f"expected a fold of folds.json, {', '.join(known.folds)}; found {folder.name}"])
    value, errors, not_compared = "", list[str](), list[str]()
    try:
        check_inside(folder.path)
        facts = read_manifest(folder.manifest, FoldManifest)
        facts["config"] = _with_defaults(facts["config"], folder.manifest)
        fold = facts["fold"]
        judged = {split: judgments_of(split, fold, known.qrels) for split in SPLITS}
        errors += changes(folder.path, facts["files"])
        for split in facts["outcome"]:
            mean, changed = _outcome(folder, facts, split, judged[split])
            value, errors = (mean if split == "test" else value), errors + changed
        errors += _changed_inputs(folder, facts)
        for what, then, now in _data_of(folder, facts, known):
            if not now:
                not_compared.append(what)
            elif now != then:
                errors.append(f"{what}: expected {then[:12]}…, found {now[:12]}…")
        if folder.name != FINAL:  # a final model has queries of its own
            errors += _changed_queries(facts["config"], known.folds[folder.name], fold)
        for queries, expected in facts["qrels"].items():
            errors += _same_hash(f"qrels.txt, {queries} queries", expected, judgments_hash(judged[queries]))
        file = folder.experiment.settings
        for key, (found, recorded) in differences(read_settings(file), facts["config"]).items():
            errors.append(f"{file.name}, {key}: expected {recorded}, found {found}")
    except UserError as error:
        errors.append(str(error).removeprefix(f"{folder.path}/"))
    return Check(name, value, errors, not_compared)


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
        named = str(facts["config"]["first_stage"]["run"] or "")
        file = run_of_manifest(folder.experiment.collection, named, run["run"])
        name = str(file) if named else file.name
        yield from _same_hash(name, run["sha256"], file_hash(file) if file.is_file() else "")
    if lists := facts.get("training_lists"):
        yield from _same_hash(lists["file"], lists["sha256"], source_hash(Path(lists["file"])))


def _data_of(folder: FoldFolder, facts: FoldManifest, known: Known) -> Iterator[tuple[str, str, str]]:
    """The feature files or the documents of a fold: name, recorded hash, and present hash; "" if they are not here."""
    source = str(facts["config"]["collection"]["source"])
    if features := facts.get("features"):
        files = {file.name: file for file in fold_files(source, folder.name)}
        for name, recorded in check_shape(features.get("files", {}), dict[str, str]).items():
            yield f"{source}, {name}", recorded, known.hash_of(files[name]) if name in files else ""
    elif documents := facts.get("documents"):
        recorded, found = documents["fingerprint"], known.fingerprint_of(source)
        yield f"{source}, documents", recorded, recorded if found is None else found


def _fingerprint(source: str) -> str | None:
    """The hash of the documents of a source; "" if they are not here.

    None for a source that is no file or folder, such as an id of ir_datasets: it has its name in place of a hash.
    """
    try:
        collection = open_collection(source)
        return collection.fingerprint if Path(source).exists() else None
    except UserError:  # it is another folder now, or there is none
        return ""


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


def _check_run(manifest: Path) -> Check:
    """Whether a run has the hash that its own manifest records."""
    run = manifest.with_suffix("")
    try:
        recorded = read_manifest(manifest, RunManifest)["run"]["sha256"]
        return Check(run.name, "", _same_hash(run.name, recorded, file_hash(run) if run.is_file() else ""))
    except UserError as error:
        return Check(run.name, "", [str(error).removeprefix(f"{run.parent}/")])


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
