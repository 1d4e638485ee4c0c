"""Compares run files: groups them into runs, finds their judgments and folds, and adds fused runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rerank.data.folds import read_folds
from rerank.data.trec import examples, read_qrels, read_run
from rerank.data.types import Fold, Qrels, Run
from rerank.evaluation.compare import Comparison
from rerank.evaluation.evaluate_runs import check_run, evaluate_runs, map_to_folds, select_queries
from rerank.evaluation.fusion import MEASURE, Weights, fuse_scores, tune_weights
from rerank.evaluation.measures import DEFAULT_MEASURES, measure_name, measure_names
from rerank.runs.layout import CollectionFolder, FoldFolder
from rerank.runs.manifest import recorded_fold
from rerank.runs.run_files import (
    FOLDERS_UP,
    find_nearby,
    folds_of_names,
    group_fold_files,
    merge_folds,
    pretraining_notes,
    validation_run,
)
from rerank.utils.errors import UserError

QRELS = CollectionFolder(Path()).qrels.name
FOLDS = CollectionFolder(Path()).folds.name


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
    files = group_fold_files(paths)
    extra = fuse_with is not None and not _among(fuse_with, paths)  # the first stage is read, but has no row
    if fuse_with is not None and extra:
        files = group_fold_files([*paths, fuse_with])
    qrels = qrels or find_nearby(paths, QRELS)
    if qrels is None:
        nearby = f"next to {paths[0]} or up to {FOLDERS_UP} folders up"
        raise UserError(f"no judgments: expected --qrels FILE, or {QRELS} {nearby}; got neither")
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
        fusion = Fusion(first, first_run, tested, judged, fuse_measure)
        runs, fusion_notes = with_fused_runs(runs, files, fusion)
    evaluation = evaluate_runs(runs, judged, queries, names)
    notes = [*evaluation.notes, *fusion_notes, *pretraining_notes(files)]
    return Comparison(replace(evaluation, notes=notes), baseline, test, correction)


def _among(file: Path, files: Iterable[Path]) -> bool:
    return file.absolute() in map(Path.absolute, files)


@dataclass(frozen=True)
class Fusion:
    """What runs are fused with, and what chooses the weights: `measure` on the validation queries of `folds`."""

    first_name: str
    first_run: Run
    folds: Sequence[Fold]
    qrels: Qrels
    measure: str


def with_fused_runs(
    runs: dict[str, Run], files: dict[str, dict[str, Path]], fusion: Fusion
) -> tuple[dict[str, Run], list[str]]:
    """Adds the run `name + first` after each run but the first stage; returns the runs and a note on each weight.

    `files` are number of the fold -> file of each run. The weight of a fold is tuned on the model's scores of its
    validation queries, from valid.run (see `validation_run`); if no fold has that file, the run itself has to have
    them. Raises UserError if the first stage has no judged validation query of a fold, or the model's scores of one are
    missing.
    """
    rows, notes = {}, []
    for name, run in runs.items():
        rows[name] = run
        if name == fusion.first_name:
            continue
        weights: dict[str, Weights] = {}
        has_valid_runs = any(validation_run(files[name], fold.name).is_file() for fold in fusion.folds)
        for fold in fusion.folds:
            path = validation_run(files[name], fold.name)
            if has_valid_runs:
                validated = recorded_fold(FoldFolder(path.parent).manifest) or fold  # which may have fewer queries
                weights[fold.name] = _tune(str(path), read_run(path), validated, fusion)
            else:
                weights[fold.name] = _tune(f"{name} (there is no {path} either)", run, fold, fusion)
        fused = f"{name} + {fusion.first_name}"
        of_queries = {query_id: weights[fold.name] for fold in fusion.folds for query_id in fold.test}
        rows[fused] = fuse_scores([fusion.first_run, run], of_queries)
        by_fold = ", ".join(f"fold {fold} {weight:.2f}" for fold, (_, weight) in weights.items())
        notes.append(
            f"{fused}: weight of {name} by {fusion.measure} on each fold's validation queries "
            f"({'its valid.run' if has_valid_runs else 'its own scores of them'}): {by_fold}."
        )
    return rows, notes


def _tune(source: str, scores: Run, fold: Fold, fusion: Fusion) -> Weights:
    """The best weights on the fold's validation queries; `scores` are the model's, read from `source`."""
    valid = {query_id: fusion.qrels[query_id] for query_id in fold.valid if query_id in fusion.qrels}
    if fusion.first_run.keys().isdisjoint(valid):
        raise UserError(
            f"{fusion.first_name} has none of the {len(valid)} judged validation queries of fold {fold.name}: expected "
            "the first stage's run of all queries, to tune the weights on"
        )
    missing = [query_id for query_id in valid if query_id in fusion.first_run and query_id not in scores]
    if missing:
        raise UserError(
            f"{source}: {len(missing)} of the {len(valid)} validation queries of fold {fold.name} are missing "
            f"({examples(missing)}), on which the weight is tuned; expected the model's scores of all of them"
        )
    return tune_weights([fusion.first_run, scores], valid, fusion.measure)
