"""Makes Table 4 of Thonet et al. 2021 on a public text collection: losses that fine-tune a cross-encoder.

    rerank sweep configs/sweeps/table4.toml --collection nfcorpus --encoder all-MiniLM-L6-v2
    python -m scripts.paper table4 runs/nfcorpus

A row is a loss, what it optimises, the documents of a training list if they are not 2 + 2, and the weight with which
the model adds the first stage's score if it does. Its inverse temperature (alpha) and its learning rate are those with
the best mean over the validation queries at the lowest seed. Values are means over the seeds of that cell; a query's
value is its mean over the seeds. "fused" is the run interpolated with the first stage's, with weights that the
validation queries choose.
"""

import argparse
import inspect
from collections import defaultdict
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import rerank
from rerank.config import ListsSettings
from rerank.data.folds import read_folds
from rerank.data.types import Qrels, Run
from rerank.evaluation.run_comparison import ComparisonSettings, compare_measurements
from rerank.evaluation.tables import aligned, format_mean
from rerank.experiments.runs.experiment_results import ExperimentResults
from rerank.experiments.runs.layout import CollectionFolder, ExperimentFolder, FoldFolder
from rerank.experiments.runs.settings import read_settings
from rerank.utils.errors import UserError

POWER = 2.8
"""Standard errors of a paired difference that a two-sided test at 5 % detects in 80 % of samples: 1.96 + 0.84."""

Values = dict[str, float]
"""query_id -> the value of the measure."""


@dataclass(frozen=True)
class Cell:
    """One finished training: what was set, and the folder of each fold."""

    row: str
    choice: tuple[float, float]
    seed: int
    folds: tuple[FoldFolder, ...]


def read_cell(folder: ExperimentFolder) -> Cell | None:
    """The cell in the folder of an experiment; None if a fold is not finished."""
    folds = tuple(folder.folds)
    if not folds or not all(fold.finished for fold in folds):
        return None
    settings = read_settings(folder.settings)
    loss, training = dict(settings["loss"]), settings["training"]
    name = loss.pop("name")
    parameters = inspect.signature(rerank.losses.LOSSES[name]).parameters
    alpha = float(loss.pop("alpha", parameters["alpha"].default)) if "alpha" in parameters else 0.0
    changed = [f"{key} {value}" for key, value in loss.items() if value != parameters[key].default]
    lists = ListsSettings(**settings.get("lists", {}))
    if lists != ListsSettings():
        changed.append(f"{lists.relevant} + {lists.non_relevant}")
    if weight := settings.get("encoder", {}).get("first_stage_weight"):
        changed.append(f"first stage {weight:g}")
    return Cell(" ".join([name, *changed]), (alpha, training["lr"]), training["seed"], folds)


def measured(qrels: Qrels, run: Run, measure: str) -> Values:
    """The value of each judged query of the run; one without a candidate counts 0."""
    (values,) = rerank.evaluate(qrels, run, [measure]).values()
    return values


def validation_mean(cell: Cell, qrels: Qrels, measure: str) -> float:
    """The mean over the folds' validation queries."""
    runs = (rerank.read_run(fold.valid_run) for fold in cell.folds)
    return fmean(fmean(measured({q: qrels[q] for q in run}, run, measure).values()) for run in runs)


def fused_with(first: Run, valid: Run, run: Run, qrels: Qrels, measure: str) -> Run:
    """A run interpolated with the first stage's, with weights that its validation run chooses."""
    weights = rerank.tune_weights([valid, {q: first[q] for q in valid}], {q: qrels[q] for q in valid}, measure)
    return rerank.fuse_scores([run, {q: first[q] for q in run}], weights)


def test_values(
    cell: Cell, first: Run, qrels: Qrels, test: dict[str, list[str]], measure: str
) -> tuple[Values, Values]:
    """The test queries' values: of the run alone, and fused with the first stage's."""
    alone: Values = {}
    fused: Values = {}
    for fold in cell.folds:
        judged = {query: qrels[query] for query in test[fold.name]}
        valid, run = rerank.read_run(fold.valid_run), rerank.read_run(fold.test_run)
        alone |= measured(judged, run, measure)
        fused |= measured(judged, fused_with(first, valid, run, qrels, measure), measure)
    return alone, fused


def mean_over_seeds(of_seeds: list[Values]) -> Values:
    """Each query's mean over the seeds."""
    return {query: fmean(values[query] for values in of_seeds) for query in of_seeds[0]}


def make_rows(folder: Path, first: Run, measure: str) -> tuple[dict[str, Values], dict[str, dict[str, Any]]]:
    """Row -> its queries' values, and row -> what its line says."""
    collection = CollectionFolder(folder)
    qrels = rerank.read_qrels(collection.qrels)
    test = {fold.name: [q for q in fold.test if qrels.get(q)] for fold in read_folds(collection.folds)}
    cells = [cell for experiment in collection.experiments if (cell := read_cell(experiment))]
    by_row: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        by_row[cell.row].append(cell)
    queries = {query: qrels[query] for of_fold in test.values() for query in of_fold}
    values = {"first stage": measured(queries, {q: first.get(q, {}) for q in queries}, measure)}
    lines: dict[str, dict[str, Any]] = {"first stage": {}}
    for row, of_row in by_row.items():
        seed = min(cell.seed for cell in of_row)
        tried = {cell.choice: validation_mean(cell, qrels, measure) for cell in of_row if cell.seed == seed}
        choice = max(tried, key=lambda key: tried[key])
        pairs = [test_values(cell, first, qrels, test, measure) for cell in of_row if cell.choice == choice]
        values[row] = mean_over_seeds([alone for alone, _ in pairs])
        values[f"{row}, fused"] = mean_over_seeds([fused for _, fused in pairs])
        seeds = [fmean(alone.values()) for alone, _ in pairs]
        lines[row] = {"alpha": choice[0] or "", "lr": choice[1], "seeds": len(seeds), "tried": len(tried)}
        lines[row]["of seeds"] = format_mean(fmean(seeds), stdev(seeds) / sqrt(len(seeds))) if len(seeds) > 1 else ""
    return values, lines


def table(folder: Path, first: Run, measure: str) -> str:
    """The table of one collection, and what its number of queries can detect."""
    values, lines = make_rows(folder, first, measure)
    against_first = _compared(values, "first stage")
    trained_rows = {row: values[row] for row in lines if row != "first stage"}
    best = max(trained_rows, key=lambda row: fmean(trained_rows[row].values()))
    against_best = _compared(trained_rows, best)
    head = ["loss", "alpha", "lr", "cells", "seeds", measure, "± over seeds", "− first stage", "p", f"p against {best}"]
    rows = [[*head, "fused", "− first stage", "p"]]
    for row, line in lines.items():
        mean = f"{fmean(values[row].values()):.4f}"
        if row == "first stage":
            rows.append([row, "", "", "", "", mean, *[""] * 7])
            continue
        found, fused, other = against_first[row], against_first[f"{row}, fused"], against_best.get(row)
        trained = [row, _number(line["alpha"]), _number(line["lr"]), str(line["tried"]), str(line["seeds"]), mean]
        alone_against = [line["of seeds"], f"{found.difference:+.4f}", _p(found.p_corrected)]
        both = [f"{fused.mean:.4f}", f"{fused.difference:+.4f}", _p(fused.p_corrected)]
        rows.append([*trained, *alone_against, _p(other.p_corrected) if other else "", *both])
    gaps = [_error([values[row][q] - values[best][q] for q in values[row]]) for row in trained_rows if row != best]
    note = f"{len(values['first stage'])} test queries. p: two-sided paired t-test over the queries, with Bonferroni's "
    note += "correction for the runs with the same reference."
    if gaps:
        least = POWER * fmean(gaps)
        note += f" Differences between two losses below {least:.4f} are not detected in 80 % of samples."
    return f"{folder.name}\n\n{aligned(rows)}\n{note}\n"


def first_stage_of(folder: Path) -> Path:
    """The run that the finished experiments of a collection have re-ranked."""
    finished = [experiment for experiment in CollectionFolder(folder).experiments if read_cell(experiment)]
    if not finished:
        raise UserError(f"{folder}: no experiment is finished; expected those of `rerank sweep table4`")
    return ExperimentResults(finished[0]).first_stage_file


def _compared(values: dict[str, Values], baseline: str) -> dict[str, Any]:
    measurements = {name: {"": of_queries} for name, of_queries in values.items()}
    (comparisons,) = compare_measurements(measurements, settings=ComparisonSettings(baseline)).values()
    return {row.run: row for row in comparisons if row.run != baseline}


def _error(differences: list[float]) -> float:
    return stdev(differences) / sqrt(len(differences))


def _number(value: Any) -> str:
    return f"{value:g}" if value else ""


def _p(value: float) -> str:
    return "< .001" if value < 0.001 else f"{value:.3f}"


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="runs/<collection>")
    parser.add_argument("--first-stage", type=Path, help="the run that was re-ranked [default: as the manifests say]")
    parser.add_argument("--measure", default="nDCG@10")
    given = parser.parse_args(words)
    first = given.first_stage or first_stage_of(given.folder)
    print(table(given.folder, rerank.read_run(first), given.measure))
