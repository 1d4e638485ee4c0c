"""Compares run files: groups them into runs, and finds their judgments and folds."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rerank.data.folds import read_folds
from rerank.data.trec import read_qrels, read_run
from rerank.evaluation.compare import Comparison
from rerank.evaluation.evaluate_runs import check_run, evaluate_runs, map_to_folds, select_queries
from rerank.evaluation.measures import DEFAULT_MEASURES, measure_names
from rerank.runs.run_files import (
    FOLDS,
    expect_qrels,
    find_nearby,
    folds_of_names,
    group_fold_files,
    merge_folds,
    pretraining_notes,
)


def compare_files(
    paths: Sequence[Path],
    qrels: Path | None = None,
    folds: Path | None = None,
    fold: str | None = None,
    measures: Iterable[str] | None = None,
    *,
    baseline: str | None = None,
    test: str = "t",
    correction: str = "bonferroni",
) -> Comparison:
    """Compares the runs in TREC files, as `rerank eval` does; `compare` has the same for runs in memory.

    Files whose names differ only in the number of a fold are the folds of one run. `folds` is a folds.json and `qrels`
    a file of judgments; without them, those next to a run or up to three folders above are used, and without a
    folds.json the fold numbers in the file names. `fold` limits the comparison to the test queries of that fold, as
    does a folds.json with one fold; "all" is every fold. A judged query that a run does not have counts 0.

    Raises UserError if a file is missing or malformed, there are no judgments, a query is in two folds or in two files
    of a run, judged queries are in no fold, a run has no query of a fold, a fold does not exist, a measure, the test or
    the correction is unknown, no run is called `baseline`, or a run has no judged query.
    """
    paths = list(paths)
    names = measure_names(measures or DEFAULT_MEASURES)
    files = group_fold_files(paths)
    qrels = expect_qrels(paths, qrels)
    judged = {query_id: judgments for query_id, judgments in read_qrels(qrels).items() if judgments}
    fold_runs = {name: {number: read_run(path) for number, path in files[name].items()} for name in files}
    runs = {name: merge_folds(fold_runs[name], files[name]) for name in files}
    folds = folds or find_nearby(paths, FOLDS)
    fold_of = map_to_folds(read_folds(folds), str(folds)) if folds else folds_of_names(fold_runs, files)
    if fold in (None, "all") and folds and len(set(fold_of.values())) == 1:  # only its test queries must count
        fold = next(iter(fold_of.values()))
    fold = None if fold == "all" else fold
    queries = select_queries(judged, fold_of, fold, str(folds or "the folds in the names of the files"))
    for name, run in runs.items():
        check_run(name, run, queries, str(qrels))
    evaluation = evaluate_runs(runs, judged, queries, names)
    notes = [*evaluation.notes, *pretraining_notes(files)]
    return Comparison(replace(evaluation, notes=notes), baseline, test, correction)
