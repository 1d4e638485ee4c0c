"""Runs and their judgments, from a folder of experiments or from run files, for charts, reports and tables."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from rerank.data.runs import read_qrels
from rerank.data.types import Qrels, Run
from rerank.evaluation.measures import measure_name
from rerank.experiments.runs.experiment_results import ExperimentResults
from rerank.experiments.runs.layout import CollectionFolder, ExperimentFolder
from rerank.experiments.runs.run_files import RunFiles, expect_qrels
from rerank.utils.errors import UserError
from rerank.utils.inside import check_files_inside, check_inside, inside


@dataclass(frozen=True)
class RunFile:
    """A run, and the rankings of the same queries by the run that it is compared with (`first_stage`)."""

    name: str
    run: Run
    first_stage: Run

    def candidates(self) -> Run:
        return self.first_stage


Compared: TypeAlias = ExperimentResults | RunFile
"""A run and the first stage that it is compared with."""

C = TypeVar("C", ExperimentResults, RunFile)


@dataclass(frozen=True)
class Results(Generic[C]):
    """Runs of a folder `where`, or of files, whose first is `where`; charts show `measure`.

    `first_stage_names` has the name of each run's first stage. `queries` has the texts of queries, if known.
    """

    where: Path
    qrels_file: Path
    measure: str
    experiments: list[C]
    first_stage_names: dict[str, str]
    queries: Mapping[str, str] = field(default_factory=dict)

    @functools.cached_property
    def qrels(self) -> Qrels:
        return {query_id: grades for query_id, grades in read_qrels(self.qrels_file).items() if grades}

    def judged(self, query_ids: Iterable[str]) -> Qrels:
        """The judgments of these queries, without unjudged queries."""
        return {query_id: self.qrels[query_id] for query_id in query_ids if query_id in self.qrels}


def open_results(folder: Path, measure: str) -> Results[ExperimentResults]:
    """Opens the experiments with a finished fold in runs/<collection>, or the experiment of this folder.

    Raises UserError if the folder is neither, no fold is finished, or settings or a manifest are damaged.
    """
    experiment = ExperimentFolder(folder)
    is_one = experiment.settings.is_file() and experiment.collection.qrels.is_file()
    collection = experiment.collection if is_one else CollectionFolder(folder)
    if not collection.qrels.is_file():
        others = sorted(str(path) for path in folder.glob("*/") if CollectionFolder(path).qrels.is_file())
        expected = " or ".join(others) or "runs/<collection>, as `rerank train` fills it"
        raise UserError(f"{folder}: not a folder of runs: it has no {collection.qrels.name}; expected {expected}")
    first_stages: dict[Path, Run] = {}
    folders = [experiment] if is_one else collection.experiments
    check_files_inside(collection.path)
    for each in folders:
        check_inside(inside(collection.path, each.name))
    experiments = [ExperimentResults(path, first_stages) for path in folders if path.has_results]
    if not experiments:
        expected = "runs/<collection> after `rerank train` or `rerank sweep`"
        raise UserError(f"{folder}: no experiment here has a finished fold (fold1/test.run); expected {expected}")
    first = {(experiment.first_stage_file, experiment.depth) for experiment in experiments}
    are_distinct = len({file.stem for file, _ in first}) == len(first)
    names = {
        e.name: e.first_stage_file.stem if are_distinct else f"{e.first_stage_file}, first {e.depth}"
        for e in experiments
    }
    return Results(collection.path, collection.qrels, measure_name(measure), experiments, names)


def compared_with_first(files: RunFiles, qrels: Path | None, measure: str) -> Results[RunFile]:
    """Compares each run with the first one. Without `qrels`, the judgments near the runs are used.

    Raises UserError if there is only one run, or if a run has no query of the first one.
    """
    where, ((first, first_run), *others) = files.paths[0], files.runs.items()
    if not others:
        raise UserError(f"{where}: is one run; expected two or more: the others are compared with the first")
    runs = [RunFile(name, run, {q: first_run[q] for q in run if q in first_run}) for name, run in others]
    if apart := next((run.name for run in runs if not run.first_stage), None):
        raise UserError(f"{apart}: has no query of {where}; expected one or more")
    names = {run.name: first for run in runs}
    return Results(where, expect_qrels(files.paths, qrels), measure_name(measure), runs, names)
