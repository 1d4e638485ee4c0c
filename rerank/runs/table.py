"""Compares run files: groups them into runs, and finds their judgments and folds."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rerank.data.folds import read_folds
from rerank.data.trec import read_qrels
from rerank.evaluation.compare import Comparison
from rerank.evaluation.evaluate_runs import check_run, evaluate_runs, map_to_folds, select_queries
from rerank.evaluation.measures import DEFAULT_MEASURES, measure_names
from rerank.runs.run_files import FOLDS, RunFiles, expect_qrels, find_nearby, pretraining_notes


def compare_files(
    runs: Iterable[Path] | RunFiles,
    qrels: Path | None = None,
    folds: Path | None = None,
    fold: str | None = None,
    measures: Iterable[str] | None = None,
    *,
    baseline: str | None = None,
    test: str = "t",
    correction: str = "bonferroni",
) -> Comparison:
    """Compares the runs in TREC files, read or not, as `rerank eval` does; `compare` has the same for runs in memory.

    Files whose names differ only in the number of a fold are the folds of one run. `folds` is a folds.json and `qrels`
    a file of judgments; without them, those next to a run or up to three folders above are used, and without a
    folds.json the fold numbers in the file names. `fold` limits the comparison to the test queries of that fold, as
    does a folds.json with one fold; "all" is every fold. A judged query that a run does not have counts 0.

    Raises UserError if a file is missing or malformed, there are no judgments, a query is in two folds or in two files
    of a run, judged queries are in no fold, a run has no query of a fold, a fold does not exist, a measure, the test or
    the correction is unknown, no run is called `baseline`, or a run has no judged query.
    """
    names = measure_names(measures or DEFAULT_MEASURES)
    files = runs if isinstance(runs, RunFiles) else RunFiles.read(runs)
    qrels = expect_qrels(files.paths, qrels)
    judged = {query_id: judgments for query_id, judgments in read_qrels(qrels).items() if judgments}
    folds = folds or find_nearby(files.paths, FOLDS)
    fold_of = map_to_folds(read_folds(folds), str(folds)) if folds else files.fold_of()
    if fold in (None, "all") and folds and len(set(fold_of.values())) == 1:  # only its test queries must count
        fold = next(iter(fold_of.values()))
    fold = None if fold == "all" else fold
    queries = select_queries(judged, fold_of, fold, str(folds or "the folds in the names of the files"))
    for name, run in files.runs.items():
        check_run(name, run, queries, str(qrels))
    evaluation = evaluate_runs(files.runs, judged, queries, names)
    evaluation = replace(evaluation, notes=[*evaluation.notes, *pretraining_notes(files.by_fold)])
    return Comparison(evaluation, baseline, test, correction)
