"""The checks of one fold: its files, its runs and the collection against its manifest."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rerank.data.folds import FINAL, draw_queries, fold_of
from rerank.data.types import Fold, Qrels
from rerank.evaluation.measures import measure_name
from rerank.runs.layout import FoldFolder
from rerank.runs.manifest import judgments_hash, outcome, read_manifest
from rerank.runs.settings import differences, read_settings
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash
from rerank.utils.integrity import changes

MEASURE = "nDCG@20"
"""The measure that the table shows."""
PARTS = ("train", "valid", "test")
TOLERANCE = 1e-9


class Checked(NamedTuple):
    """MEASURE over the test queries, the errors, and the files of other folders that are gone."""

    value: str
    errors: Sequence[str]
    gone: Sequence[str] = ()


def check_fold(folder: FoldFolder, folds: Mapping[str, Fold], qrels: Qrels) -> Checked:
    """Checks a fold, or the final model, with the collection's folds by name and its judgments."""
    if not folder.path.is_dir():
        return Checked("", ["expected a folder, as its queries are in all.run, found none"])
    if folder.name not in (*folds, FINAL):
        return Checked("", [f"expected a fold of folds.json, {', '.join(folds)}; found {folder.name}"])
    errors: list[str] = []
    try:
        facts = read_manifest(folder.manifest, "outcome")
        fold = fold_of(facts["fold"])
        judged = {part: {q: qrels[q] for q in getattr(fold, part) if qrels.get(q)} for part in PARTS}
        errors += changes(folder.path, facts["files"])
        means, changed = _outcomes(folder, facts, judged)
        gone, changed_inputs = _inputs(folder, facts)
        errors += changed + changed_inputs
        if folder.name != FINAL:  # a final model has queries of its own
            errors += _changed_queries(facts["config"], folds[folder.name], fold)
        for part, expected in facts["qrels"].items():
            errors += _same_hash(f"qrels.txt, {part} queries", expected, judgments_hash(judged[part]))
        file = folder.experiment.settings
        for key, (found, recorded) in differences(read_settings(file), facts["config"]).items():
            errors.append(f"{file.name}, {key}: expected {recorded}, found {found}")
    except UserError as error:
        return Checked("", [*errors, _in_folder(error, folder)])
    return Checked(f"{means[MEASURE]:.4f}" if MEASURE in means else "", errors, gone)


def _outcomes(
    folder: FoldFolder, facts: dict[str, Any], judged: Mapping[str, Qrels]
) -> tuple[dict[str, float], list[str]]:
    """The means of the test run, and what differs in the hashes and the means of the runs, computed again."""
    means: dict[str, float] = {}
    errors: list[str] = []
    measure = facts["config"]["training"]["measure"]
    for part, recorded in facts["outcome"].items():
        run, expected = folder.valid_run if part == "valid" else folder.test_run, dict(recorded["means"])
        if part == "valid" and measure != "loss":
            expected[measure_name(measure)] = facts["best_valid"]
        if not run.is_file():
            errors.append(f"{run.name}: expected a file, found none")
            continue
        try:
            found = outcome(run, judged[part], expected)
        except UserError as error:
            errors.append(_in_folder(error, folder))
            continue
        if part == "test":
            means = found["means"]
        errors += _same_hash(run.name, recorded["sha256"], found["sha256"])
        changed = [name for name, mean in expected.items() if not abs(mean - found["means"][name]) <= TOLERANCE]
        for name in changed[:1]:
            errors.append(f"{run.name}, {name}: expected {expected[name]:.6f}, found {found['means'][name]:.6f}")
    return means, errors


def _inputs(folder: FoldFolder, facts: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The input files of other folders that are gone, by their facts, and what differs in the others."""
    gone: list[str] = []
    errors: list[str] = []
    elsewhere = [(fact, key) for fact, key in (("first_stage", "run"), ("training_lists", "file")) if fact in facts]
    for fact, key in elsewhere:
        file, made_here = Path(facts[fact][key]), fact == "first_stage" and not facts["config"]["first_stage"]["run"]
        if made_here:
            file = folder.experiment.collection.path / file.name  # the folder may have been moved
        if file.is_file():
            errors += _same_hash(file.name if made_here else str(file), facts[fact]["sha256"], file_hash(file))
        elif made_here:
            errors.append(f"{file.name}: expected the first stage's run, found none")
        else:
            gone.append(f"{fact}: {file}")
    return gone, errors


def _changed_queries(config: dict[str, Any], whole: Fold, recorded: Fold) -> Iterator[str]:
    """The queries that the settings draw from a fold of folds.json, against those of the manifest."""
    training = config["training"]
    found = draw_queries(whole, config["collection"]["train_queries"], training["validate_queries"], training["seed"])
    if changed := [part for part in PARTS if getattr(found, part) != getattr(recorded, part)]:
        yield f"folds.json: expected the {' and '.join(changed)} queries of the manifest, found others"


def _same_hash(name: str, expected: str, found: str) -> Iterator[str]:
    if expected != found:
        yield f"{name}: expected SHA-256 {expected[:12]}…, found {found[:12]}…"


def _in_folder(error: UserError, folder: FoldFolder) -> str:
    """The error, whose file is named relative to the fold's folder."""
    return str(error).removeprefix(f"{folder.path}/")
