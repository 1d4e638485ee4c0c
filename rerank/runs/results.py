"""Reads the finished experiments of a collection: for reports, for sweeps and for the paper's tables."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from rerank.data.folds import read_folds
from rerank.data.trec import read_qrels, read_run
from rerank.data.types import Fold, Qrels, Run
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.measures import DEFAULT_MEASURES, measure_name
from rerank.runs.experiment_results import ExperimentResults
from rerank.runs.layout import CollectionFolder, ExperimentFolder
from rerank.runs.manifest import read_manifest
from rerank.utils.errors import UserError


@dataclass(frozen=True)
class CollectionResults:
    """The experiments of runs/<collection> that have a finished fold.

    `measures` are computed together; the first of them is what charts show. `queries` has the queries' texts, if known.
    `name` limits the results to one experiment.
    """

    folder: CollectionFolder
    measures: Sequence[str] = DEFAULT_MEASURES
    name: str = ""
    queries: dict[str, str] = field(default_factory=dict)

    @property
    def measure(self) -> str:
        """The measure that charts show."""
        return self.measures[0]

    @property
    def where(self) -> str:
        """The folder."""
        return str(self.folder.path)

    @functools.cached_property
    def folds(self) -> dict[str, Fold]:
        """The folds by name."""
        return {fold.name: fold for fold in read_folds(self.folder.folds)}

    @functools.cached_property
    def qrels(self) -> Qrels:
        """The judgments of all judged queries."""
        return {query_id: grades for query_id, grades in read_qrels(self.folder.qrels).items() if grades}

    @functools.cached_property
    def experiments(self) -> list[ExperimentResults]:
        """The experiments with a finished fold, by name; raises UserError if there is none."""
        folders = [self.folder.experiment(self.name)] if self.name else self.folder.experiments
        first_stages: dict[Path, Run] = {}
        experiments = [ExperimentResults(folder, first_stages) for folder in folders if folder.has_results]
        if not experiments:
            raise UserError(
                f"{folders[0].path if self.name else self.folder.path}: no experiment here has a finished fold "
                "(fold1/test.run); expected runs/<collection> after `rerank train` or `rerank sweep`"
            )
        return experiments

    def judged(self, query_ids: Iterable[str]) -> Qrels:
        """The judgments of those queries that have any."""
        return {query_id: self.qrels[query_id] for query_id in query_ids if query_id in self.qrels}

    @functools.cached_property
    def first_stage_names(self) -> dict[str, str]:
        """The shortest names of the experiments' candidates that tell different ones apart, by experiment."""
        keys = list(dict.fromkeys((e.first_stage_file, e.depth) for e in self.experiments))
        forms = [file.stem for file, _ in keys], [f"{file.stem}, first {depth}" for file, depth in keys]
        unique = [form for form in forms if len(set(form)) == len(keys)]
        names = unique[0] if unique else [f"{file}, first {depth}" for file, depth in keys]
        return {e.name: names[keys.index((e.first_stage_file, e.depth))] for e in self.experiments}

    def has_fold(self, experiment: str, fold: str) -> bool:
        """Whether that fold of that experiment has its validation and its test run."""
        folder = self.folder.experiment(experiment).fold(fold)
        return folder.valid_run.exists() and folder.finished

    def validation_mean(self, experiment: str, fold: str, measure: str) -> float:
        """The mean over the fold's judged validation queries: of its manifest, or computed if that has no such mean.

        Raises UserError if the manifest was changed.
        """
        folder = self.folder.experiment(experiment).fold(fold)
        facts = read_manifest(folder.manifest) if folder.manifest.is_file() else {}
        recorded: dict[str, float] = facts.get("outcome", {}).get("valid", {}).get("means", {})
        if measure in recorded:
            return recorded[measure]
        query_ids = facts["fold"]["valid"] if facts else self.folds[fold].valid  # a fold may validate with some of them
        values = evaluate(self.judged(query_ids), read_run(folder.valid_run), [measure])[measure]
        return fmean(values.values())


def read_results(folder: Path, measure: str) -> CollectionResults:
    """Reads runs/<collection>, or one experiment's folder in it, for a report that shows `measure`.

    Raises UserError if the folder is neither, no fold is finished, or a file is damaged.
    """
    experiment = ExperimentFolder(folder)
    if experiment.settings.is_file() and experiment.collection.qrels.is_file():
        results = CollectionResults(experiment.collection, [measure_name(measure)], experiment.name)
    else:
        results = CollectionResults(CollectionFolder(folder), [measure_name(measure)])
        if not results.folder.qrels.is_file():
            inside = sorted(str(path) for path in folder.glob("*/") if CollectionFolder(path).qrels.is_file())
            expected = " or ".join(inside) or "runs/<collection>, as `rerank train` fills it"
            name = results.folder.qrels.name
            raise UserError(f"{folder}: not a folder of runs: it has no {name}; expected {expected}")
    for one in results.experiments:  # a damaged file ends the command before anything is written
        _ = one.settings, one.first_stage, results.qrels
        _ = [(fold.history, fold.facts, fold.passages) for fold in one.folds]
    return results


def expect_one_experiment(results: CollectionResults, chart: str) -> None:
    """Raises UserError for results of several experiments."""
    if len(results.experiments) > 1:
        names = " or ".join(str(experiment.folder.path) for experiment in results.experiments)
        raise UserError(f"{chart}: shows one experiment, and {results.folder.path} has several; expected {names}")
