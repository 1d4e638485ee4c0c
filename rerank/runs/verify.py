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
from rerank.runs.pretraining_checks import check_pretraining
from rerank.utils.errors import UserError

MISSING = "Missing, so not checked"
OLDER = "Written by an older version, which did not record"


class Verification(NamedTuple):
    """A line for each fold and each all.run as text, and whether all of them hold."""

    table: str
    holds: bool

    def __str__(self) -> str:
        return self.table


def verify(folder: Path | str) -> Verification:
    """Checks every fold and final model in runs/<collection>, in an experiment's folder, or in a fold's folder.

    The pre-trainings of runs/<collection> are checked too. What the version that wrote a manifest did not record is
    noted and is no failure. An unfinished fold is no failure either, unless its queries are in all.run. Raises
    UserError if there is no fold, or if the collection's qrels.txt or folds.json cannot be read.
    """
    folder = Path(folder).absolute()
    collection, experiments = _experiments(folder)
    folds = {fold.name: fold for fold in read_folds(collection.folds)}
    qrels = read_qrels(collection.qrels)
    rows, results = [["", MEASURE, ""]], []
    notes: dict[str, dict[str, list[str]]] = {MISSING: defaultdict(list), OLDER: defaultdict(list)}

    def add(name: str, checked: Checked) -> None:
        rows.append([name, checked.value, "; ".join(checked.errors) or "holds"])
        results.append(not checked.errors)
        for kind, facts in ((MISSING, checked.gone), (OLDER, checked.unrecorded)):
            if facts:
                notes[kind][", ".join(facts)].append(name)

    for experiment in experiments:
        only_fold = folder != experiment.path and folder != collection.path
        has_all_run = experiment.all_run.is_file() and not only_fold
        fold_folders = {fold.path: fold for fold in [*experiment.models, *map(experiment.fold, folds)]}
        for path in [folder] if only_fold else sorted(fold_folders):
            name = f"{experiment.name}/{path.name}"
            if (not has_all_run or path.name == FINAL) and not _has_results(fold_folders[path]):
                rows.append([name, "", "not finished"])
                continue
            add(name, check_fold(fold_folders[path], folds, qrels))
        if has_all_run:
            add(f"{experiment.name}/{experiment.all_run.name}", Checked("", list(_all_run(experiment, folds))))
    for pretraining in collection.pretrainings if folder == collection.path else ():
        if pretraining.manifest.exists():
            add(pretraining.path.name, Checked("", *check_pretraining(pretraining)))
    lines = [
        f"{kind}: {facts} ({', '.join(names)})." for kind, of_kind in notes.items() for facts, names in of_kind.items()
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
