"""`rerank eval`: run files -> the table, with the folds and the judgments that their names and folders tell."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from rerank.errors import UserError
from rerank.evaluation import MEASURES, evaluate, measure_names, missing
from rerank.folds import read_folds
from rerank.report import table
from rerank.trec import check_common, examples, read_qrels, read_run
from rerank.types import Qrels, Run

FOLD_NUMBER = re.compile(r"(?<![A-Za-z])fold[-_]?(\d+)(?!.*fold[-_]?\d)")  # the last one of a path
FOLDERS_UP = 3  # from runs/<collection>/<experiment>/fold1/test.run to runs/<collection>, and one more


def evaluate_files(
    paths: list[Path],
    qrels: Path | None = None,
    folds: Path | None = None,
    fold: str | None = None,
    measures: list[str] | None = None,
    markdown: bool = False,
) -> str:
    """The table of the runs in `paths`, as text or Markdown.

    Files whose names differ only in the number of a fold are the folds of one run: one row. The folds are those of the
    `folds.json` that is given or lies beside a run or up to three folders up; where there is none, the numbers in the
    file names. `qrels.txt` is looked for in the same places. `fold` limits the table to the topics that it tests, which
    are the only ones where there is but one fold. Every
    judged topic counts, 0 where a run lacks it, and the notes below the table say what was lacking or left out.

    Raises UserError where a file is missing or malformed, no judgments are found, a topic is in two folds or in two
    files of a run, a fold does not exist, a measure is unknown, or a run has none of the judged topics.
    """
    names = measure_names(measures or MEASURES)
    files = _files_of_runs(paths)
    qrels = qrels or _beside(paths, "qrels.txt")
    if qrels is None:
        up = f"beside {paths[0]} or up to {FOLDERS_UP} folders up"
        raise UserError(f"no judgments: expected --qrels FILE, or qrels.txt {up}; got neither")
    judged = {query_id: judgments for query_id, judgments in read_qrels(qrels).items() if judgments}
    parts = {name: {number: read_run(path) for number, path in of_run.items()} for name, of_run in files.items()}
    runs = {name: _merged(of_run, files[name]) for name, of_run in parts.items()}
    folds = folds or _beside(paths, "folds.json")
    fold_of = _folds_of_file(folds) if folds else _folds_of_names(parts, files)
    tested = set(fold_of.values()) if folds else set()
    if fold is None and len(tested) == 1:  # one fold: the judgments of its validation queries make no topics
        fold = tested.pop()
    fold = None if fold == "all" else fold
    chosen, groups = _topics(judged, fold_of, fold)
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
    notes += _warmed_up(files)
    return table(rows, groups, f"topics of fold {fold}" if fold else "topics", notes, markdown)


def _files_of_runs(paths: list[Path]) -> dict[str, dict[str, Path]]:
    """The name of each run -> number of the fold ("" where the name has none) -> file."""
    if not paths:
        raise UserError("eval: expected at least one run file, got none")
    for path in paths:
        if path.is_dir():
            raise UserError(f"{path}: is a folder, expected a run file, such as {path / 'all.run'}")
    files: dict[str, dict[str, Path]] = defaultdict(dict)
    for path in paths:
        text = path.absolute().as_posix()
        number = FOLD_NUMBER.search(text)
        of_run = files[FOLD_NUMBER.sub("fold", text)]
        if (number[1] if number else "") in of_run:
            raise UserError(f"{path}: given twice; expected each run once")
        of_run[number[1] if number else ""] = path
    return dict(zip(_short_names(list(files)), files.values(), strict=True))


def _short_names(keys: list[str]) -> list[str]:
    """The last telling part of each path, and of as many folders above as it takes to tell the runs apart."""
    telling = []
    for key in keys:
        parts = [re.sub(r"([-_.]?fold)?((\.(run|trec|res|txt|gz))+)?$", "", part) for part in Path(key).parts]
        telling.append([part for part in parts if part not in ("", "/", "all", "test")] or [key])
    for length in range(1, max(map(len, telling)) + 1):
        names = ["/".join(parts[-length:]) for parts in telling]
        if len(set(names)) == len(names):
            return names
    return keys


def _beside(paths: list[Path], name: str) -> Path | None:
    """The one file called `name` in the folders of `paths` or near above, the nearest of each path."""
    found = set()
    for path in paths:
        near = (folder / name for folder in path.absolute().parents[: FOLDERS_UP + 1])
        found.update([file for file in near if file.is_file()][:1])
    if len(found) > 1:
        raise UserError(f"{' and '.join(map(str, sorted(found)))}: expected one {name} for all runs; name it")
    return next(iter(found), None)


def _merged(parts: dict[str, Run], files: dict[str, Path]) -> Run:
    merged: Run = {}
    source: dict[str, Path] = {}
    for number, run in parts.items():
        for query_id in run:
            if query_id in source:
                raise UserError(
                    f"{files[number]}: query {query_id} is also in {source[query_id]}; expected it in one fold"
                )
        merged |= run
        source |= dict.fromkeys(run, files[number])
    return merged


def _folds_of_file(path: Path) -> dict[str, str]:
    """query_id -> name of the fold that tests it."""
    fold_of: dict[str, str] = {}
    for fold in read_folds(path):
        for query_id in fold.test:
            if fold_of.setdefault(query_id, fold.name) != fold.name:
                raise UserError(
                    f"{path}: folds {fold_of[query_id]} and {fold.name} both test query {query_id}, expected one"
                )
    return fold_of


def _folds_of_names(parts: dict[str, dict[str, Run]], files: dict[str, dict[str, Path]]) -> dict[str, str]:
    """query_id -> number of the fold in the name of the file that has it; files without a number tell nothing."""
    fold_of: dict[str, str] = {}
    numbered = [(number, name) for name, of_run in parts.items() for number in of_run if number]
    for number, name in sorted(numbered, key=lambda pair: int(pair[0])):
        for query_id in parts[name][number]:
            if fold_of.setdefault(query_id, number) != number:
                before = fold_of[query_id]
                raise UserError(
                    f"{files[name][number]}: query {query_id} is in fold {before} of another run, expected {number}"
                )
    return fold_of


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
