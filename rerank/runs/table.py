"""`rerank eval`: run files -> a table, with the folds and the judgments that their names and folders tell."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rerank.data.folds import read_folds
from rerank.data.trec import check_common, examples, read_qrels, read_run
from rerank.errors import UserError
from rerank.evaluation.compare import compare
from rerank.evaluation.evaluate import evaluate, missing
from rerank.evaluation.fusion import interpolate, tune
from rerank.evaluation.measures import MEASURES, measure_label, measure_names
from rerank.evaluation.tables.details import details_table
from rerank.evaluation.tables.records import as_csv, as_json, comparison_records, per_query_records
from rerank.evaluation.tables.summary import paper_table
from rerank.evaluation.tables.table import render
from rerank.runs.run_files import (
    FOLDERS_UP,
    beside,
    files_of_runs,
    folds_of_file,
    folds_of_names,
    merged,
    validation_run,
    warmed_up,
)
from rerank.types import Fold, Measurements, Qrels, Run
from rerank.utils.progress import log


class Measured(NamedTuple):
    """`rows` are the measurements of each run over the same topics, `groups` the topics of each fold to average over.

    `fold_of` is query_id -> fold, `over` says what the means are over, and `notes` what was lacking and left out.
    """

    rows: dict[str, Measurements]
    groups: list[list[str]]
    fold_of: dict[str, str]
    over: str
    notes: list[str]


def measure_files(
    paths: list[Path],
    qrels: Path | None = None,
    folds: Path | None = None,
    fold: str | None = None,
    measures: list[str] | None = None,
    interpolate: Path | None = None,
    tune_on: str = "nDCG@20",
) -> Measured:
    """The measurements of the runs in `paths`.

    Files whose names differ only in the number of a fold are the folds of one run: one row. The folds are those of the
    `folds.json` that is given or lies beside a run or up to three folders up; where there is none, the numbers in the
    file names. `qrels.txt` is looked for in the same places. `fold` limits the rows to the topics that it tests, which
    are the only ones where there is but one fold. Every judged topic counts, 0 where a run lacks it. `interpolate` is
    the first stage's run: every other run gets a second row, mixed with it, whose weight the measure `tune_on` chooses
    on the validation topics of each fold.

    Raises UserError where a file is missing or malformed, no judgments are found, a topic is in two folds or in two
    files of a run, folds leave out judged topics or a run whole folds, a fold does not exist, a measure is unknown, or
    a run has none of the judged topics.
    """
    names = measure_names(measures or MEASURES)
    (tuned_by,) = measure_names([tune_on])
    given = files_of_runs(paths)
    files = files_of_runs([*paths, interpolate]) if interpolate and not _holds(given, interpolate) else given
    qrels = qrels or beside(paths, "qrels.txt")
    if qrels is None:
        up = f"beside {paths[0]} or up to {FOLDERS_UP} folders up"
        raise UserError(f"no judgments: expected --qrels FILE, or qrels.txt {up}; got neither")
    judged = {query_id: judgments for query_id, judgments in read_qrels(qrels).items() if judgments}
    parts = {name: {number: read_run(path) for number, path in of_run.items()} for name, of_run in files.items()}
    runs = {name: merged(of_run, files[name]) for name, of_run in parts.items()}
    folds = folds or beside(paths, "folds.json")
    known = read_folds(folds) if folds else []
    fold_of = folds_of_file(folds, known) if folds else folds_of_names(parts, files)
    names_of_folds = set(fold_of.values()) if folds else set()
    if fold is None and len(names_of_folds) == 1:  # one fold: the judgments of its validation queries make no topics
        fold = names_of_folds.pop()
    fold = None if fold == "all" else fold
    chosen, groups = _topics(judged, fold_of, fold, str(folds or "the folds in the names of the files"))
    for name, run in runs.items():
        check_common(run, chosen, name, f"{qrels} (fold {fold})" if fold else str(qrels))
        _check_folds(name, run, groups, fold_of)
    mixing: list[str] = []
    if interpolate:
        if folds is None:
            raise UserError(f"--interpolate: expected --folds FILE, or folds.json near {paths[0]}: no folds to tune on")
        first = next(name for name in files if _holds({name: files[name]}, interpolate))
        first_run = runs[first] if len(files) == len(given) else runs.pop(first)
        tested = [one for one in known if fold in (None, one.name)]
        runs, mixing = with_interpolated(runs, files, (first, first_run), tested, judged, tuned_by)
    rows = {name: evaluate(chosen, run, names) for name, run in runs.items()}
    notes = [*_notes(runs, chosen, judged), *mixing, *warmed_up(files)]
    over = f"{len(groups)} folds, " * bool(groups) + f"{len(chosen)} topics" + f" of fold {fold}" * bool(fold)
    return Measured(rows, groups, fold_of, over, notes)


def table_of(
    measured: Measured,
    baseline: str | None = None,
    test: str = "t",
    correction: str = "bonferroni",
    details: bool = False,
    per_query: bool = False,
    form: str = "text",
) -> str:
    """The table of what was measured, as text, Markdown, LaTeX, CSV or JSON (`form`).

    The notes stand below the table (on standard error for CSV). `baseline`, `test` and `correction` are those of
    `compare`. `details` has every comparison in full, as CSV and JSON always have; `per_query` gives the values alone,
    as CSV or JSON. Raises UserError where no run is called `baseline`.
    """
    if per_query:
        return _records("values", per_query_records(measured.rows, measured.fold_of), form, measured.notes)
    full = details or form in ("csv", "json")
    compared = compare(measured.rows, measured.groups, baseline, test, correction, intervals=full)
    if form in ("csv", "json"):
        records = comparison_records(compared)
        return _records("comparisons", records, form, measured.notes, test=test, correction=correction)
    view = details_table if details else paper_table
    return render(view(compared, measured.over, measured.notes, baseline, test, correction), form)


def _records(name: str, records: list[dict[str, object]], form: str, notes: list[str], **facts: str) -> str:
    if form == "json":
        return as_json(name, records, notes=notes, **facts)
    for note in notes:
        log.info(note)
    return as_csv(records)


def _holds(files: dict[str, dict[str, Path]], path: Path) -> bool:
    return any(path.absolute() == file.absolute() for of_run in files.values() for file in of_run.values())


def _topics(judged: Qrels, fold_of: dict[str, str], fold: str | None, source: str) -> tuple[Qrels, list[list[str]]]:
    """The judgments of the topics that count, and the topics of each fold to take the mean over (none: over topics)."""
    names = list(dict.fromkeys(fold_of.values()))
    if fold:
        if fold not in names:
            expected = (
                f"one of {', '.join(names)}" if names else "--folds FILE, or fold numbers in the names of the runs"
            )
            raise UserError(f"fold {fold}: no such fold; expected {expected}")
        return {query_id: judgments for query_id, judgments in judged.items() if fold_of.get(query_id) == fold}, []
    groups = [[query_id for query_id in judged if fold_of.get(query_id) == name] for name in names]
    groups = [group for group in groups if group]
    if len(groups) < 2:
        return judged, []
    outside = [query_id for query_id in judged if query_id not in fold_of]
    if outside:
        raise UserError(
            f"{source}: {len(outside)} of {len(judged)} judged topics are in no fold ({examples(outside)}), so there "
            "is no mean over folds; expected --folds with all of them, --qrels with the folds' topics, or --fold N"
        )
    return {query_id: judged[query_id] for group in groups for query_id in group}, groups


def _check_folds(name: str, run: Run, groups: list[list[str]], fold_of: dict[str, str]) -> None:
    """Raises UserError where a run lacks whole folds: a mean over the folds would be that of another experiment."""
    lacking = [fold_of[group[0]] for group in groups if run.keys().isdisjoint(group)]
    if lacking:
        there = Counter(fold_of[query_id] for query_id in run if query_id in fold_of).most_common(1)[0][0]
        raise UserError(
            f"{name}: lacks every topic of fold {', '.join(lacking)}; expected a run of all {len(groups)} folds, or "
            f"`--fold {there}`, which limits the table to the topics of that fold"
        )


def _notes(runs: dict[str, Run], chosen: Qrels, judged: Qrels) -> list[str]:
    """Which topics the runs lack, and which of theirs cannot count."""
    lacking = {name: missing(chosen, run) for name, run in runs.items()}
    notes = [
        f"{name} lacks {len(of_run)} of {len(chosen)} topics, which count 0: {examples(of_run)}."
        for name, of_run in lacking.items()
        if of_run
    ]
    unjudged = dict.fromkeys(query_id for run in runs.values() for query_id in run if query_id not in judged)
    if unjudged:
        notes.append(
            f"Topics of the runs without judgments, which cannot count ({len(unjudged)}): {examples(unjudged)}."
        )
    return notes if any(lacking.values()) else ["No run lacks a topic.", *notes]


def with_interpolated(
    runs: dict[str, Run],
    files: dict[str, dict[str, Path]],
    first: tuple[str, Run],
    folds: Sequence[Fold],
    judged: Qrels,
    measure: str,
) -> tuple[dict[str, Run], list[str]]:
    """`runs` (name -> run) with the row `name + first` below each but the first stage, and the notes on the weights.

    `files` are those of each run, `first` the name and the run of the first stage. The weight of a fold is the best by
    `measure` (a trec_eval name) on its validation topics, with the model's scores from valid.run (see
    `validation_run`); where no fold has that file, the run's own scores of these topics are taken. Raises UserError
    where a fold has no judged validation topic in the first stage, or the model's scores of one are not there.
    """
    first_name, first_run = first
    rows, notes = {}, []
    for name, run in runs.items():
        rows[name] = run
        if name == first_name:
            continue
        weights, weight_of = {}, {}
        beside = any(validation_run(files[name], fold.name).is_file() for fold in folds)
        for fold in folds:
            valid = {query_id: judged[query_id] for query_id in fold.valid if query_id in judged}
            if first_run.keys().isdisjoint(valid):
                raise UserError(
                    f"{first_name} has none of the {len(valid)} judged validation topics of fold {fold.name}: expected "
                    "the first stage's run of all topics, to tune the weights on"
                )
            scores = _validation_scores(name, run, files[name], fold.name, beside)
            lacking = [query_id for query_id in valid if query_id in first_run and query_id not in scores[1]]
            if lacking:
                raise UserError(
                    f"{scores[0]}: lacks {len(lacking)} of the {len(valid)} validation topics of fold {fold.name} "
                    f"({examples(lacking)}), which the weight is tuned on; expected the model's scores of all of them"
                )
            weights[fold.name] = tune(scores[1], first_run, valid, measure)
            weight_of.update(dict.fromkeys(fold.test, weights[fold.name]))
        rows[f"{name} + {first_name}"] = interpolate(run, first_run, weight_of)
        source = "its valid.run" if beside else "its own scores of them"
        found = ", ".join(f"fold {fold} {weight:.2f}" for fold, weight in weights.items())
        notes.append(
            f"{name} + {first_name}: weight of {name} by {measure_label(measure)} on each fold's validation topics "
            f"({source}): {found}."
        )
    return rows, notes


def _validation_scores(name: str, run: Run, files: dict[str, Path], fold: str, beside: bool) -> tuple[str, Run]:
    """Where the model's scores of a fold's validation topics come from, for a message, and the scores."""
    path = validation_run(files, fold)
    return (str(path), read_run(path)) if beside else (f"{name} (there is no {path} either)", run)
