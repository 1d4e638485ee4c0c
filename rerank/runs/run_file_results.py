"""Run files and their judgments as charts and the report show them: the others are compared with the first one."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from rerank.data.trec import read_qrels, read_run
from rerank.data.types import Qrels, Run
from rerank.evaluation.measures import measure_name
from rerank.runs.experiment_results import ExperimentResults
from rerank.runs.results import CollectionResults
from rerank.runs.run_files import expect_qrels, group_fold_files, merge_folds
from rerank.utils.errors import UserError


@dataclass(frozen=True)
class RunFile:
    """A run, and the first one."""

    name: str
    run: Run
    first_stage: Run

    def candidates(self) -> Run:
        """The first run's rankings of the same queries."""
        return self.first_stage


@dataclass(frozen=True)
class RunFileResults:
    """All runs but the first, each compared with it."""

    paths: Sequence[Path]
    qrels_file: Path
    measure: str
    queries: dict[str, str] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """The first file."""
        return str(self.paths[0])

    @functools.cached_property
    def qrels(self) -> Qrels:
        """The judgments of all judged queries."""
        return {query_id: grades for query_id, grades in read_qrels(self.qrels_file).items() if grades}

    @functools.cached_property
    def runs(self) -> dict[str, Run]:
        """The runs by name, the first one first; files of the folds of a run are one."""
        grouped = group_fold_files(list(self.paths))
        return {
            name: merge_folds({number: read_run(file) for number, file in files.items()}, files)
            for name, files in grouped.items()
        }

    @functools.cached_property
    def experiments(self) -> list[RunFile]:
        """The runs but the first; raises UserError if there is none."""
        (_, first), *others = self.runs.items()
        if not others:
            raise UserError(f"{self.where}: is one run; expected two or more, of which the first is compared with")
        return [RunFile(name, run, {q: first[q] for q in run if q in first}) for name, run in others]

    def judged(self, query_ids: Iterable[str]) -> Qrels:
        """The judgments of those queries that have any."""
        return {query_id: self.qrels[query_id] for query_id in query_ids if query_id in self.qrels}

    @property
    def first_stage_names(self) -> dict[str, str]:
        """The name of the first run, for each other one."""
        first, *others = self.runs
        return dict.fromkeys(others, first)


Compared: TypeAlias = ExperimentResults | RunFile
"""A run and what it is compared with."""

Results: TypeAlias = CollectionResults | RunFileResults
"""Runs with their judgments: of a folder of experiments, or of files."""


def read_run_files(paths: Sequence[Path], qrels: Path | None, measure: str) -> RunFileResults:
    """Reads run files and their judgments, by default those near the runs; raises UserError for wrong files."""
    results = RunFileResults(paths, expect_qrels(list(paths), qrels), measure_name(measure))
    for compared in results.experiments:
        if not results.judged(compared.run):
            raise UserError(f"{compared.name}: has no judged query of {results.qrels_file}; expected one or more")
        if not compared.first_stage:
            raise UserError(f"{compared.name}: has no query of {results.where}; expected one or more")
    return results
