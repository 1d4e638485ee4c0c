"""Compares run files: groups them into runs, finds their judgments and folds, and adds fused runs."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rerank.data.folds import read_folds
from rerank.data.trec import read_qrels, read_run
from rerank.data.types import Fold, Qrels, Run
from rerank.evaluation.compare import Comparison
from rerank.evaluation.evaluate_runs import check_run, evaluate_runs, map_to_folds, select_queries
from rerank.evaluation.fusion import Weights, fuse_scores
from rerank.evaluation.measures import DEFAULT_MEASURES, measure_name, measure_names
from rerank.evaluation.weights import MEASURE, tune_on_fold
from rerank.runs.layout import FoldFolder
from rerank.runs.manifest import recorded_fold
from rerank.runs.run_files import (
    FOLDS,
    expect_qrels,
    find_nearby,
    folds_of_names,
    group_fold_files,
    merge_folds,
    pretraining_notes,
    validation_run,
)
from rerank.utils.errors import UserError


def compare_files(
    paths: Sequence[Path],
    qrels: Path | None = None,
    folds: Path | None = None,
    fold: str | None = None,
    measures: Iterable[str] | None = None,
    *,
    fuse_with: Path | None = None,
    fuse_measure: str = MEASURE,
    baseline: str | None = None,
    test: str = "t",
    correction: str = "bonferroni",
) -> Comparison:
    """Compares the runs in TREC files, as `rerank eval` does; `compare` has the same for runs in memory.

    Files whose names differ only in the number of a fold are the folds of one run. `folds` is a folds.json and `qrels`
    a file of judgments; without them, those next to a run or up to three folders above are used, and without a
    folds.json the fold numbers in the file names. `fold` limits the comparison to the test queries of that fold, as
    does a folds.json with one fold; "all" is every fold. A judged query that a run does not have counts 0. `fuse_with`
    is the run of the first stage: every other run gets a second row, fused with it, with a weight for each fold that
    is best by `fuse_measure` on the validation queries.

    Raises UserError if a file is missing or malformed, there are no judgments, a query is in two folds or in two files
    of a run, judged queries are in no fold, a run has no query of a fold, a fold does not exist, a measure, the test or
    the correction is unknown, no run is called `baseline`, or a run has no judged query.
    """
    paths = list(paths)
    names = measure_names(measures or DEFAULT_MEASURES)
    fuse_measure = measure_name(fuse_measure)
    extra = [fuse_with] if paths and fuse_with and not _among(fuse_with, paths) else []  # is read, but has no row
    files = group_fold_files([*paths, *extra])
    qrels = expect_qrels(paths, qrels)
    judged = {query_id: judgments for query_id, judgments in read_qrels(qrels).items() if judgments}
    fold_runs = {name: {number: read_run(path) for number, path in files[name].items()} for name in files}
    runs = {name: merge_folds(fold_runs[name], files[name]) for name in files}
    folds = folds or find_nearby(paths, FOLDS)
    known = read_folds(folds) if folds else []
    fold_of = map_to_folds(known, str(folds)) if folds else folds_of_names(fold_runs, files)
    if fold in (None, "all") and folds and len(set(fold_of.values())) == 1:  # only its test queries must count
        fold = next(iter(fold_of.values()))
    fold = None if fold == "all" else fold
    queries = select_queries(judged, fold_of, fold, str(folds or "the folds in the names of the files"))
    for name, run in runs.items():
        check_run(name, run, queries, str(qrels))
    fusion_notes: list[str] = []
    if fuse_with is not None:
        if folds is None:
            raise UserError(f"--fuse-with: expected --folds FILE, or {FOLDS} near {paths[0]}: no folds to tune on")
        first = next(name for name, by_number in files.items() if _among(fuse_with, by_number.values()))
        first_run = runs.pop(first) if extra else runs[first]
        tested = [one for one in known if fold in (None, one.name)]
        runs, fusion_notes = _with_fused_runs(runs, files, first, first_run, tested, judged, fuse_measure)
    evaluation = evaluate_runs(runs, judged, queries, names)
    notes = [*evaluation.notes, *fusion_notes, *pretraining_notes(files)]
    return Comparison(replace(evaluation, notes=notes), baseline, test, correction)


def _among(file: Path, files: Iterable[Path]) -> bool:
    return file.absolute() in map(Path.absolute, files)


def _with_fused_runs(
    runs: dict[str, Run],
    files: dict[str, dict[str, Path]],
    first: str,
    first_run: Run,
    folds: Sequence[Fold],
    qrels: Qrels,
    measure: str,
) -> tuple[dict[str, Run], list[str]]:
    """Adds the run `name + first` after each run but the first stage; returns the runs and a note on each weight.

    `files` are number of the fold -> file of each run. The weights of a fold are tuned on the model's scores of its
    validation queries, from valid.run (see `validation_run`); if no fold has that file, on the run's own scores.
    """
    rows, notes = {}, []
    for name, run in runs.items():
        rows[name] = run
        if name == first:
            continue
        valid_runs = {fold.name: validation_run(files[name], fold.name) for fold in folds}
        has_valid_runs = any(file.is_file() for file in valid_runs.values())
        weights: dict[str, Weights] = {}
        for fold in folds:
            file = valid_runs[fold.name]
            source, scores = (str(file), read_run(file)) if has_valid_runs else (f"{name} (there is no {file})", run)
            validated = recorded_fold(FoldFolder(file.parent).manifest) or fold  # which may have fewer queries
            weights[fold.name] = tune_on_fold({first: first_run, source: scores}, qrels, validated, measure)
        of_queries = {query_id: weights[fold.name] for fold in folds for query_id in fold.test}
        rows[f"{name} + {first}"] = fuse_scores([first_run, run], of_queries)
        by_fold = ", ".join(f"fold {fold} {weight:.2f}" for fold, (_, weight) in weights.items())
        notes.append(
            f"{name} + {first}: weight of {name} by {measure} on each fold's validation queries "
            f"({'its valid.run' if has_valid_runs else 'its own scores of them'}): {by_fold}."
        )
    return rows, notes
