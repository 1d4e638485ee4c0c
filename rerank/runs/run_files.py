"""The files of runs: which belong to one run, what the table calls it, and the folds and judgments that lie near."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from rerank.errors import UserError
from rerank.types import Fold, Run

FOLD_NUMBER = re.compile(r"(?<![A-Za-z])fold[-_]?(\d+)(?!.*fold[-_]?\d)")  # the last one of a path
FOLDERS_UP = 3  # from runs/<collection>/<experiment>/fold1/test.run to runs/<collection>, and one more


def files_of_runs(paths: list[Path]) -> dict[str, dict[str, Path]]:
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


def beside(paths: list[Path], name: str) -> Path | None:
    """The one file called `name` in the folders of `paths` or near above, the nearest of each path."""
    found = set()
    for path in paths:
        near = (folder / name for folder in path.absolute().parents[: FOLDERS_UP + 1])
        found.update([file for file in near if file.is_file()][:1])
    if len({file.read_bytes() for file in found} if len(found) > 1 else found) > 1:
        raise UserError(f"{' and '.join(map(str, sorted(found)))}: differ; expected one {name} for all runs; name it")
    return min(found, default=None)


def merged(parts: dict[str, Run], files: dict[str, Path]) -> Run:
    """The run whose folds are `parts` (number -> run, read from `files`); UserError for a query in two of them."""
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


def folds_of_file(path: Path, folds: list[Fold]) -> dict[str, str]:
    """query_id -> name of the fold that tests it; `path` is the file of `folds`."""
    fold_of: dict[str, str] = {}
    for fold in folds:
        for query_id in fold.test:
            if fold_of.setdefault(query_id, fold.name) != fold.name:
                raise UserError(
                    f"{path}: folds {fold_of[query_id]} and {fold.name} both test query {query_id}, expected one"
                )
    return fold_of


def folds_of_names(parts: dict[str, dict[str, Run]], files: dict[str, dict[str, Path]]) -> dict[str, str]:
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


def validation_run(files: dict[str, Path], fold: str) -> Path:
    """Where the run of `files` (number of the fold -> file) has the scores of the validation topics of `fold`.

    That is valid.run beside fold1/test.run, or in the folder fold1 beside all.run.
    """
    path = files.get(fold) or next(iter(files.values()))
    folder = path.parent if path.parent.name == f"fold{fold}" else path.parent / f"fold{fold}"
    return folder / "valid.run"


def warmed_up(files: dict[str, dict[str, Path]]) -> list[str]:
    """Which runs began with a pre-training without labels, and which, from the manifests beside them."""
    runs: dict[str, list[str]] = defaultdict(list)
    for name, of_run in files.items():
        for pretraining in dict.fromkeys(_pretraining(path) for path in _manifests(of_run.values())):
            runs[pretraining].append(name)
    runs.pop("", None)
    return [
        f"Pre-trained on the documents alone: {', '.join(names)} ({pretraining})."
        for pretraining, names in runs.items()
    ]


def _manifests(paths: Iterable[Path]) -> list[Path]:
    """Beside the run of a fold, in the folds of an experiment beside its all.run, or with the run's name."""
    near = [
        [path.with_name("manifest.json"), path.with_name(f"{path.name}.json"), *path.parent.glob("fold*/manifest.json")]
        for path in paths
    ]
    return sorted(path for candidates in near for path in candidates if path.is_file())


def _pretraining(manifest: Path) -> str:
    try:
        facts = json.loads(manifest.read_text(encoding="utf-8")).get("pretraining")
    except (ValueError, AttributeError):  # another program's file of this name
        return ""
    if not facts:
        return ""
    return f"{facts['steps']} steps, MRR of held-out pseudo-queries {facts['mrr_held_out']}, {facts['hash']}"
