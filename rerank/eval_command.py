"""`rerank eval`: run files -> the table, with the folds and the judgments that their names and folders tell."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from rerank.errors import UserError
from rerank.evaluation import evaluate, missing
from rerank.folds import read_folds
from rerank.interpolated_rows import with_interpolated
from rerank.measures import MEASURES, measure_names
from rerank.report import table
from rerank.run_files import FOLDERS_UP, beside, files_of_runs, folds_of_file, folds_of_names, merged
from rerank.trec import check_common, examples, read_qrels, read_run
from rerank.types import Qrels, Run


def evaluate_files(
    paths: list[Path],
    qrels: Path | None = None,
    folds: Path | None = None,
    fold: str | None = None,
    measures: list[str] | None = None,
    markdown: bool = False,
    interpolate: Path | None = None,
    tune_on: str = "nDCG@20",
) -> str:
    """The table of the runs in `paths`, as text or Markdown.

    Files whose names differ only in the number of a fold are the folds of one run: one row. The folds are those of the
    `folds.json` that is given or lies beside a run or up to three folders up; where there is none, the numbers in the
    file names. `qrels.txt` is looked for in the same places. `fold` limits the table to the topics that it tests. Every
    judged topic counts, 0 where a run lacks it, and the notes below the table say what was lacking or left out.
    `interpolate` is the first stage's run: every other run gets a second row, mixed with it, whose weight the measure
    `tune_on` chooses on the validation topics of each fold.

    Raises UserError where a file is missing or malformed, no judgments are found, a topic is in two folds or in two
    files of a run, a fold does not exist, a measure is unknown, or a run has none of the judged topics.
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
    fold = None if fold == "all" else fold
    chosen, groups = _topics(judged, fold_of, fold)
    mixing: list[str] = []
    if interpolate:
        if folds is None:
            raise UserError(f"--interpolate: expected --folds FILE, or folds.json near {paths[0]}: no folds to tune on")
        first = next(name for name in files if _holds({name: files[name]}, interpolate))
        first_run = runs[first] if len(files) == len(given) else runs.pop(first)
        tested = [one for one in known if fold in (None, one.name)]
        runs, mixing = with_interpolated(runs, files, (first, first_run), tested, judged, tuned_by)
    rows = {}
    for name, run in runs.items():
        check_common(run, chosen, name, f"{qrels} (fold {fold})" if fold else str(qrels))
        rows[name] = evaluate(chosen, run, names)
    notes = [note for name, run in runs.items() for note in _notes(name, run, chosen, {} if fold else fold_of)]
    if not any(missing(chosen, run) for run in runs.values()):
        notes.insert(0, "No run lacks a topic.")
    unjudged = dict.fromkeys(query_id for run in runs.values() for query_id in run if query_id not in judged)
    if unjudged:
        notes.append(
            f"Topics of the runs without judgments, which cannot count ({len(unjudged)}): {examples(unjudged)}."
        )
    outside = [query_id for query_id in judged if query_id not in fold_of]
    if groups and outside:
        notes.append(
            f"Judged topics in no fold, which are left out ({len(outside)} of {len(judged)}): {examples(outside)}."
        )
    notes += [*mixing, *_warmed_up(files)]
    return table(rows, groups, f"topics of fold {fold}" if fold else "topics", notes, markdown)


def _holds(files: dict[str, dict[str, Path]], path: Path) -> bool:
    return any(path.absolute() == file.absolute() for of_run in files.values() for file in of_run.values())


def _topics(judged: Qrels, fold_of: dict[str, str], fold: str | None) -> tuple[Qrels, list[list[str]]]:
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
    return {query_id: judged[query_id] for group in groups for query_id in group}, groups


def _warmed_up(files: dict[str, dict[str, Path]]) -> list[str]:
    """Which runs began with a warm-up without labels, and which, from the manifests beside them."""
    runs: dict[str, list[str]] = defaultdict(list)
    for name, of_run in files.items():
        for warmup in dict.fromkeys(_warmup(path) for path in _manifests(of_run.values())):
            runs[warmup].append(name)
    runs.pop("", None)
    return [f"Warmed up on the documents alone: {', '.join(names)} ({warmup})." for warmup, names in runs.items()]


def _manifests(paths: Iterable[Path]) -> list[Path]:
    """Beside the run of a fold, in the folds of an experiment beside its all.run, or with the run's name."""
    near = [
        [path.with_name("manifest.json"), path.with_name(f"{path.name}.json"), *path.parent.glob("fold*/manifest.json")]
        for path in paths
    ]
    return sorted(path for candidates in near for path in candidates if path.is_file())


def _warmup(manifest: Path) -> str:
    try:
        facts = json.loads(manifest.read_text(encoding="utf-8")).get("warmup")
    except (ValueError, AttributeError):  # another program's file of this name
        return ""
    if not facts:
        return ""
    return f"{facts['steps']} steps, MRR of held-out pseudo-queries {facts['mrr_held_out']}, {facts['hash']}"


def _notes(name: str, run: Run, chosen: Qrels, fold_of: dict[str, str]) -> list[str]:
    """What a run lacks; and the fold to limit the table to, where that is most of the topics."""
    notes = []
    lacking = missing(chosen, run)
    if lacking:
        notes.append(f"{name} lacks {len(lacking)} of {len(chosen)} topics, which count 0: {examples(lacking)}.")
    if len(lacking) > len(chosen) / 2 and any(query_id in fold_of for query_id in run):
        number = Counter(fold_of[query_id] for query_id in run if query_id in fold_of).most_common(1)[0][0]
        notes.append(f"`--fold {number}` limits the table to the topics of that fold.")
    return notes
