"""Runs and their judgments, of a folder of experiments or of files: for charts, the report and the paper's tables."""

import functools
from collections.abc import Iterable
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


@dataclass(frozen=True)
class RunFile:
    """A run, and the first one's rankings of the same queries."""

    name: str
    run: Run
    first_stage: Run

    def candidates(self) -> Run:
        return self.first_stage


Compared: TypeAlias = ExperimentResults | RunFile  # a run and what it is compared with
C = TypeVar("C", ExperimentResults, RunFile)


@dataclass(frozen=True)
class Results(Generic[C]):
    """Runs of a folder, or of files whose first is `where`; charts show `measure`.

    `first_stage_names` are the first stages' names by those of the runs. `queries` has the queries' texts, if known.
    """

    where: Path
    qrels_file: Path
    measure: str
    experiments: list[C]
    first_stage_names: dict[str, str]
    queries: dict[str, str] = field(default_factory=dict)

    @functools.cached_property
    def qrels(self) -> Qrels:
        return {query_id: grades for query_id, grades in read_qrels(self.qrels_file).items() if grades}

    def judged(self, query_ids: Iterable[str]) -> Qrels:
        """The judgments of those queries that have any."""
        return {query_id: self.qrels[query_id] for query_id in query_ids if query_id in self.qrels}


def open_results(folder: Path, measure: str) -> Results[ExperimentResults]:
    """The experiments with a finished fold in runs/<collection>, by name, or the one whose folder this is.

    Raises UserError if the folder is neither, no fold is finished, or settings or a manifest are damaged.
    """
    experiment = ExperimentFolder(folder)
    is_one = experiment.settings.is_file() and experiment.collection.qrels.is_file()
    collection = experiment.collection if is_one else CollectionFolder(folder)
    if not collection.qrels.is_file():
        inside = sorted(str(path) for path in folder.glob("*/") if CollectionFolder(path).qrels.is_file())
        expected = " or ".join(inside) or "runs/<collection>, as `rerank train` fills it"
        raise UserError(f"{folder}: not a folder of runs: it has no {collection.qrels.name}; expected {expected}")
    first_stages: dict[Path, Run] = {}
    folders = [experiment] if is_one else collection.experiments
    experiments = [ExperimentResults(one, first_stages) for one in folders if one.has_results]
    if not experiments:
        expected = "runs/<collection> after `rerank train` or `rerank sweep`"
        raise UserError(f"{folder}: no experiment here has a finished fold (fold1/test.run); expected {expected}")
    first = {(one.first_stage_file, one.depth) for one in experiments}
    are_short = len({file.stem for file, _ in first}) == len(first)  # and tell the first stages apart
    names = {
        e.name: e.first_stage_file.stem if are_short else f"{e.first_stage_file}, first {e.depth}" for e in experiments
    }
    return Results(collection.path, collection.qrels, measure_name(measure), experiments, names)


def compared_with_first(files: RunFiles, qrels: Path | None, measure: str) -> Results[RunFile]:
    """Each run but the first, compared with it. Without `qrels` the judgments are those near the runs.

    Raises UserError if there is one run alone, or none of its queries is in the first one.
    """
    where, ((first, first_run), *others) = files.paths[0], files.runs.items()
    if not others:
        raise UserError(f"{where}: is one run; expected two or more, of which the first is compared with")
    runs = [RunFile(name, run, {q: first_run[q] for q in run if q in first_run}) for name, run in others]
    if apart := next((run.name for run in runs if not run.first_stage), None):
        raise UserError(f"{apart}: has no query of {where}; expected one or more")
    names = {run.name: first for run in runs}
    return Results(where, expect_qrels(files.paths, qrels), measure_name(measure), runs, names)
