"""Run files: groups them into runs, finds their judgments and folds in folders nearby, and compares them."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path

from rerank.data.folds import SPLIT, read_folds
from rerank.data.runs import read_qrels, read_run
from rerank.data.trec import check_common, examples
from rerank.data.types import Run
from rerank.evaluation.compare import Comparison, compare_queries, map_to_folds, select_queries
from rerank.evaluation.measures import DEFAULT_MEASURES, measure_names
from rerank.experiments.runs.layout import CollectionFolder, ExperimentFolder
from rerank.utils.errors import UserError
from rerank.utils.inside import inside

FOLD_NUMBER = re.compile(rf"(?<![A-Za-z])fold[-_]?(\d+|{SPLIT}(?![A-Za-z]))(?!.*fold[-_]?(\d|{SPLIT}))")
"""The last number of a fold in a path."""

QRELS = CollectionFolder(Path()).qrels.name
FOLDS = CollectionFolder(Path()).folds.name

FOLDERS_UP = 3
"""Folders above a run that are searched: from …/fold1/test.run to runs/<collection>, and one more."""


@dataclass(frozen=True)
class RunFiles:
    """The content of run files, by the name of the run and the number of the fold ("" without one)."""

    paths: list[Path]
    folds: dict[str, dict[str, Run]]

    @classmethod
    def read(cls, paths: Iterable[Path]) -> "RunFiles":
        """Reads files; files that differ only in the number of a fold are one run, and must have distinct queries."""
        paths = list(paths)
        runs: dict[str, dict[str, Run]] = {}
        for name, files in _group_folds(paths).items():
            runs[name] = {number: read_run(file) for number, file in files.items()}
            for (fold, first), (other, second) in combinations(runs[name].items(), 2):
                if twice := first.keys() & second.keys():
                    where = f"query {min(twice)} is also in {files[fold]}"
                    raise UserError(f"{files[other]}: {where}; expected it in one fold")
        return cls(paths, runs)

    @cached_property
    def runs(self) -> dict[str, Run]:
        """The runs by name, each with the queries of all its folds."""
        return {
            name: {query_id: scores for run in folds.values() for query_id, scores in run.items()}
            for name, folds in self.folds.items()
        }

    def fold_of(self) -> dict[str, str]:
        """query_id -> the number of its fold in the file names.

        Raises UserError if runs disagree on it.
        """
        fold_of: dict[str, str] = {}
        numbered = [(number, name) for name, folds in self.folds.items() for number in folds if number]
        for number, name in sorted(numbered, key=lambda pair: 0 if pair[0] == SPLIT else int(pair[0])):
            for query_id in self.folds[name][number]:
                if (other := fold_of.setdefault(query_id, number)) != number:
                    raise UserError(f"{name}: query {query_id} is in fold {other} of another run, expected {number}")
        return fold_of


def are_run_files(paths: Sequence[Path]) -> bool:
    """Whether these are run files, and not one folder; raises UserError for both together."""
    if len(paths) == 1 and not paths[0].is_file():
        return False
    if folder := next((path for path in paths if path.is_dir()), None):
        raise UserError(f"{folder}: is a folder; expected only this folder, or only run files")
    return True


def expect_not_given(folder: Path, flags: Mapping[str, object]) -> None:
    """Raises UserError for a flag with a value: `folder` has judgments, texts or a measure of its own."""
    for flag, value in flags.items():
        if value:
            raise UserError(f"{flag} {value}: has no effect, as the folder {folder} has its own; leave it out")


def is_run(name: str) -> bool:
    """Whether a name is that of a run file, and not of a model; raises UserError for a .run that does not exist."""
    if Path(name).is_file():
        return True
    if name.removesuffix(".gz").endswith(".run"):
        raise UserError(f"{name}: no such file; expected a run, or the folder or hub name of a model")
    return False


def _group_folds(paths: list[Path]) -> dict[str, dict[str, Path]]:
    """Name of the run -> number of the fold (or SPLIT, or "") -> file."""
    if not paths:
        raise UserError("eval: expected at least one run file, got none")
    files: dict[str, dict[str, Path]] = defaultdict(dict)
    for path in paths:
        if path.is_dir():
            own = ExperimentFolder(path).all_run
            example = own if own.is_file() else next(iter(sorted(path.glob(f"*/{own.name}"))), own)
            raise UserError(f"{path}: is a folder, expected a run file, such as {example}")
        text = path.absolute().as_posix()
        match, folds = FOLD_NUMBER.search(text), files[FOLD_NUMBER.sub("fold", text)]
        if (number := match[1] if match else "") in folds:
            raise UserError(f"{path}: given twice; expected each run once")
        folds[number] = path
    return dict(zip(_short_names(list(files)), files.values(), strict=True))


def _short_names(paths: list[str]) -> list[str]:
    """The last informative component of each path, with as many parent folders as make the names unique."""
    informative = []
    for path in paths:
        names = (re.sub(r"([-_.]?fold)?((\.(run|trec|res|txt|gz))+)?$", "", name) for name in Path(path).parts)
        informative.append([name for name in names if name not in ("", "/", "all", "test")] or [path])
    for length in range(1, max(map(len, informative)) + 1):
        short = ["/".join(components[-length:]) for components in informative]
        if len(set(short)) == len(short):
            return short
    return paths


def find_nearby(paths: list[Path], name: str) -> Path | None:
    """The nearest file called `name` in the folder of a path or up to FOLDERS_UP folders above; None if there is none.

    Raises UserError if the files of several paths differ, and for a link that leads out of the file's folder: nobody
    has named it, and the error in a line of another file would show that line.
    """
    above = ([folder / name for folder in path.absolute().parents[: FOLDERS_UP + 1]] for path in paths)
    nearest = {inside(file.parent, name) for files in above for file in list(filter(Path.is_file, files))[:1]}
    if len(nearest) > 1 and len({file.read_bytes() for file in nearest}) > 1:
        raise UserError(f"{' and '.join(map(str, sorted(nearest)))}: differ; expected one {name} for all runs; name it")
    return min(nearest, default=None)


def expect_qrels(paths: list[Path], qrels: Path | None) -> Path:
    """The given file of judgments, or else the one near the runs; raises UserError if there is none."""
    if found := qrels or find_nearby(paths, QRELS):
        return found
    nearby = f"next to {paths[0]} or up to {FOLDERS_UP} folders up"
    raise UserError(f"no judgments: expected --qrels FILE, or {QRELS} {nearby}; got neither")


def compare_files(
    runs: Iterable[Path] | RunFiles,
    qrels: Path | None = None,
    folds: Path | None = None,
    fold: str | None = None,
    measures: Iterable[str] | None = None,
    judged_queries_only: bool = False,
) -> Comparison:
    """Compares the runs in TREC files, read or not, as `rerank eval` does; `compare` does so for runs in memory.

    Files whose names differ only in the number of a fold are the folds of one run. `qrels` is a file of judgments and
    `folds` a folds.json; the defaults are the files next to a run or up to three folders above. Without a folds.json,
    the fold numbers in the file names are used. `fold` limits the comparison to the test queries of one fold, as does
    a folds.json with one fold; "all" is every fold. With `judged_queries_only` the judged queries that a run lacks are
    left out, as trec_eval does without -c; otherwise they count 0. `dataclasses.replace` sets the baseline and the
    test. Raises UserError as `compare`, if a file is missing or malformed, and if there are no judgments or no such
    fold.
    """
    names = measure_names(measures or DEFAULT_MEASURES)
    files = runs if isinstance(runs, RunFiles) else RunFiles.read(runs)
    qrels = expect_qrels(files.paths, qrels)
    judged = read_qrels(qrels)
    folds = folds or find_nearby(files.paths, FOLDS)
    fold_of = map_to_folds(read_folds(folds), str(folds)) if folds else files.fold_of()
    if fold in (None, "all"):  # with a single fold, only its test queries count
        fold = next(iter(fold_of.values())) if folds and len(set(fold_of.values())) == 1 else None
    lacking: dict[str, None] = {}
    if judged_queries_only:
        for name, run in files.runs.items():
            check_common(run, judged, name, str(qrels))
        lacking = dict.fromkeys(q for q in judged if not all(run.get(q) for run in files.runs.values()))
        if len(lacking) == len(judged):
            raise UserError(f"{qrels}: no judged query has documents in every run: nothing to compare")
    common = {query_id: grades for query_id, grades in judged.items() if query_id not in lacking}
    queries = select_queries(common, fold_of, fold, str(folds or "the folds in the names of the files"))
    comparison = compare_queries(files.runs, judged, queries, names, str(qrels))
    if lacking:
        comparison.notes.append(f"{len(lacking)} judged queries that a run lacks are left out: {examples(lacking)}.")
    return comparison
