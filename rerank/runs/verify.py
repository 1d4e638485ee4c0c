"""`rerank verify`: checks the results of a run folder against its files and manifests."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rerank.data.folds import FINAL, read_folds
from rerank.data.trec import examples, read_qrels, read_run
from rerank.data.types import Fold, Run
from rerank.evaluation.tables.table import aligned
from rerank.runs.fold_checks import MEASURE, Checked, check_fold
from rerank.runs.layout import CollectionFolder, ExperimentFolder, FoldFolder
from rerank.runs.manifest import changed_files
from rerank.utils.errors import UserError


class Verification(NamedTuple):
    """A line for each fold and each all.run as text, and whether all of them hold."""

    table: str
    holds: bool

    def __str__(self) -> str:
        return self.table


def verify(folder: Path | str) -> Verification:
    """Checks every fold and final model in runs/<collection>, in an experiment's folder, or in a fold's folder.

    The pre-trainings of runs/<collection> are checked too. An unfinished fold is no failure, unless its queries are in
    all.run. Raises UserError if there is no fold, or if the collection's qrels.txt or folds.json cannot be read.
    """
    folder = Path(folder).absolute()
    collection, experiments = _experiments(folder)
    folds = {fold.name: fold for fold in read_folds(collection.folds)}
    qrels = read_qrels(collection.qrels)
    checks: dict[str, Checked | None] = {}
    for experiment in experiments:
        only_fold = folder not in (experiment.path, collection.path)
        has_all_run = experiment.all_run.is_file() and not only_fold
        fold_folders = {fold.path: fold for fold in [*experiment.models, *map(experiment.fold, folds)]}
        for path in [folder] if only_fold else sorted(fold_folders):
            expected = has_all_run and path.name != FINAL
            checked = expected or _has_results(fold_folders[path])
            checks[f"{experiment.name}/{path.name}"] = check_fold(fold_folders[path], folds, qrels) if checked else None
        if has_all_run:
            name = f"{experiment.name}/{experiment.all_run.name}"
            checks[name] = Checked("", list(_all_run(experiment, folds)))
    for pretraining in collection.pretrainings if folder == collection.path else ():
        if pretraining.manifest.exists():
            checks[pretraining.path.name] = Checked("", changed_files(pretraining.manifest))
    return _verification(checks)


def _verification(checks: dict[str, Checked | None]) -> Verification:
    """The table and the lines below it; None is an unfinished fold."""
    rows, gone = [["", MEASURE, ""]], defaultdict(list)
    for name, checked in checks.items():
        rows.append(
            [name, checked.value, "; ".join(checked.errors) or "holds"] if checked else [name, "", "not finished"]
        )
        if checked and checked.gone:
            gone[", ".join(checked.gone)].append(name)
    lines = [f"Missing, so not checked: {files} ({', '.join(names)})." for files, names in gone.items()]
    finished = [checked for checked in checks.values() if checked]
    failed = sum(bool(checked.errors) for checked in finished)
    lines.append(f"{failed} of {len(finished)} fail." if failed else "Everything that is recorded holds.")
    return Verification("\n".join([aligned(rows), "", *lines]) + "\n", not failed)


def _experiments(folder: Path) -> tuple[CollectionFolder, list[ExperimentFolder]]:
    """The collection's folder, and the experiments to check."""
    parent = ExperimentFolder(folder.parent)
    if any(fold.path == folder and _has_results(fold) for fold in parent.models):
        return parent.collection, [parent]
    experiment = ExperimentFolder(folder)
    if experiment.models:
        return experiment.collection, [experiment]
    experiments = [one for one in map(ExperimentFolder, sorted(folder.glob("*/"))) if one.models]
    if not experiments:
        raise UserError(f"{folder}: no fold of an experiment here; expected runs/<collection>, or a folder in it")
    return CollectionFolder(folder), experiments


def _has_results(folder: FoldFolder) -> bool:
    return folder.finished or folder.manifest.exists()


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
