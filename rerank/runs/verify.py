"""`rerank verify`: whether the numbers of a folder of runs still hold, from its files and its manifests alone."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rerank.data.folds import read_folds
from rerank.data.trec import examples, read_qrels, read_run
from rerank.errors import UserError
from rerank.evaluation.measures import measure_label, measure_names
from rerank.evaluation.tables.table import aligned
from rerank.runs.manifest import judgments_hash, outcome
from rerank.runs.settings import differences, read_toml
from rerank.types import Fold, Qrels, Run
from rerank.utils.files import file_hash

MEASURE = "ndcg_cut_20"
TOLERANCE = 1e-9
FINISHED = ("test.run", "manifest.json")
FACTS = ("fold", "config", "qrels", "outcome", "best_valid")
"""What a manifest is held to; those of older versions lack some."""


class Part(NamedTuple):
    """A fold's folder, the facts of its manifest, its queries, the collection's judgments, and what is found now.

    `found` has the `outcome` of valid.run and test.run, as "valid" and "test", where they can be read.
    """

    folder: Path
    facts: dict[str, Any]
    fold: Fold
    qrels: Qrels
    found: dict[str, Any]

    def judged(self, part: str) -> Qrels:
        """The judgments of the fold's queries: "train", "valid" or "test"."""
        return {query_id: self.qrels[query_id] for query_id in getattr(self.fold, part) if self.qrels.get(query_id)}

    @property
    def chosen_by(self) -> list[str]:
        """The measure that chose the epoch, where it was none of the loss."""
        measure = self.facts.get("config", {}).get("training", {}).get("measure", "loss")
        return [] if measure == "loss" or "best_valid" not in self.facts else [measure]


def verify(folder: Path) -> tuple[str, bool]:
    """A table with one line a fold, and one for each all.run, and whether all of them hold.

    `folder` is runs/<collection>, an experiment's folder in it, or a fold's in that. What a manifest does not say,
    because an older version wrote it, is noted and is no failure; nor is a fold that is not finished, unless its
    topics stand in all.run. Raises UserError where there is no fold, and where the collection's qrels.txt or folds.json
    cannot be read.
    """
    collection, experiments = _experiments(folder.absolute())
    folds = {fold.name: fold for fold in read_folds(collection / "folds.json")}
    qrels = read_qrels(collection / "qrels.txt")
    rows, notes, held = [["", measure_label(MEASURE), ""]], defaultdict[str, list[str]](list), []
    for experiment, places in experiments.items():
        alone = folder.absolute() in places
        whole = (experiment / "all.run").is_file() and not alone
        for place in places if alone else sorted({*places, *_places(experiment, folds)}):
            name = f"{experiment.name}/{place.name}"
            if not whole and not any((place / file).exists() for file in FINISHED):
                rows.append([name, "", "not finished"])
                continue
            value, wrong, unchecked = _check(place, folds, qrels)
            rows.append([name, value, "; ".join(wrong) or "holds"])
            held.append(not wrong)
            if unchecked:
                notes[", ".join(unchecked)].append(name)
        if whole:
            wrong = list(_all_run(experiment, folds))
            rows.append([f"{experiment.name}/all.run", "", "; ".join(wrong) or "holds"])
            held.append(not wrong)
    lines = [f"Not recorded, or not here, so not checked: {what} ({', '.join(of)})." for what, of in notes.items()]
    lines.append("Everything that is recorded holds." if all(held) else f"{held.count(False)} of {len(held)} fail.")
    return "\n".join([aligned(rows), "", *lines]) + "\n", all(held)


def _experiments(folder: Path) -> tuple[Path, dict[Path, list[Path]]]:
    """The collection's folder, and the folders of the folds of each experiment."""
    if folder.name.startswith("fold") and any((folder / file).exists() for file in FINISHED):
        return folder.parents[1], {folder.parent: [folder]}
    experiments = {place: sorted(place.glob("fold*/")) for place in (folder, *sorted(folder.glob("*/")))}
    if experiments[folder]:
        return folder.parent, {folder: experiments[folder]}
    if not any(experiments.values()):
        raise UserError(f"{folder}: no fold of an experiment here; expected runs/<collection>, or a folder in it")
    return folder, {experiment: places for experiment, places in experiments.items() if places}


def _places(experiment: Path, folds: Iterable[str]) -> list[Path]:
    return [experiment / f"fold{name}" for name in folds]


def _check(folder: Path, folds: dict[str, Fold], qrels: Qrels) -> tuple[str, list[str], list[str]]:
    """MEASURE over the fold's test topics, what does not hold, and what could not be checked."""
    name = folder.name.removeprefix("fold")
    if not folder.is_dir():
        return "", ["expected a folder, as its topics are in all.run, found none"], []
    if name not in folds:
        return "", [f"expected a fold of folds.json, {', '.join(folds)}; found {name}"], []
    facts, found, wrong = dict[str, Any](), dict[str, Any](), list[str]()
    part = Part(folder, facts, folds[name], qrels, found)
    for check in (_manifest, _files, _topics, _settings, _first_stage, _judgments, _outcome):
        try:
            wrong += check(part)
        except UserError as error:  # a file that cannot be read
            wrong.append(str(error))
    value = f"{found['test']['means'][MEASURE]:.4f}" if "test" in found else ""
    return value, wrong, _unchecked(part) if facts else []


def _manifest(part: Part) -> Iterator[str]:
    """Reads it."""
    file = part.folder / "manifest.json"
    try:
        part.facts.update(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        yield f"manifest.json: cannot be read: {error.strerror}"
    except (ValueError, TypeError) as error:
        yield f"manifest.json: expected the facts of a run in JSON, got {error}"


def _files(part: Part) -> Iterator[str]:
    """Which are missing; measures the runs that are there."""
    for name in ("log.jsonl", "valid.run", "test.run"):
        if not (part.folder / name).is_file():
            yield f"{name}: expected a file, found none"
    for name in ("valid", "test"):
        if (part.folder / f"{name}.run").is_file():
            recorded = part.facts.get("outcome", {}).get(name, {}).get("means", {})
            measures = [*recorded, *(part.chosen_by if name == "valid" else []), MEASURE]
            part.found[name] = outcome(part.folder / f"{name}.run", part.judged(name), measures)


def _topics(part: Part) -> Iterator[str]:
    for name, query_ids in part.facts.get("fold", {}).items():
        there = getattr(part.fold, name)
        if name != "name" and list(there) != query_ids:
            yield f"folds.json, {name}: expected {len(query_ids)} topics ({examples(query_ids)}), found " + (
                f"{len(there)} ({examples(there)})" if set(there) != set(query_ids) else "another order"
            )


def _settings(part: Part) -> Iterator[str]:
    if "config" in part.facts:
        there = read_toml(part.folder.parent / "config.toml")
        for key, (found, expected) in differences(there, part.facts["config"]).items():
            yield f"config.toml, {key}: expected {expected}, found {found}"


def _first_stage_file(part: Part) -> tuple[Path, bool]:
    """The run that was re-ranked, and whether it is one of the collection's folder."""
    path = Path(part.facts["first_stage"]["run"])
    given = part.facts.get("config", {}).get("first_stage", {}).get("run")
    return (path, False) if given else (part.folder.parents[1] / path.name, True)


def _first_stage(part: Part) -> Iterator[str]:
    if "first_stage" in part.facts:
        path, ours = _first_stage_file(part)
        if path.is_file():
            yield from _same_hash(path.name, part.facts["first_stage"]["sha256"], file_hash(path))
        elif ours:
            yield f"{path.name}: expected the first stage's run, found none"


def _judgments(part: Part) -> Iterator[str]:
    for name, expected in part.facts.get("qrels", {}).items():
        yield from _same_hash(f"qrels.txt, {name} topics", expected, judgments_hash(part.judged(name)))


def _outcome(part: Part) -> Iterator[str]:
    for name, found in part.found.items():
        recorded = part.facts.get("outcome", {}).get(name)
        expected = dict(recorded["means"]) if recorded else {}
        if recorded:
            yield from _same_hash(f"{name}.run", recorded["sha256"], found["sha256"])
        if name == "valid":
            expected |= dict.fromkeys(measure_names(part.chosen_by), part.facts.get("best_valid"))
        changed = [key for key, mean in expected.items() if not abs(mean - found["means"][key]) <= TOLERANCE]
        for key in changed[:1]:
            others = f" (and {len(changed) - 1} other measures)" if len(changed) > 1 else ""
            values = f"expected {expected[key]:.6f}, found {found['means'][key]:.6f}"
            yield f"{name}.run, {measure_label(key)}: {values}{others}"


def _unchecked(part: Part) -> list[str]:
    """The facts that the manifest lacks, and a first stage's run that was given from elsewhere and is not there."""
    lacking = [key for key in FACTS if key not in part.facts]
    if "first_stage" in part.facts:
        path, ours = _first_stage_file(part)
        return [*lacking, *([] if ours or path.is_file() else [f"first_stage: {path}"])]
    return [*lacking, *([] if "features" in part.facts else ["first_stage"])]


def _all_run(experiment: Path, folds: dict[str, Fold]) -> Iterator[str]:
    """Whether all.run is the union of the folds' test runs."""
    try:
        found, expected = read_run(experiment / "all.run"), Run()
        for folder in _places(experiment, folds):
            if (folder / "test.run").is_file():
                expected |= read_run(folder / "test.run")
    except UserError as error:
        yield str(error)
        return
    changed = [query_id for query_id in {**expected, **found} if expected.get(query_id) != found.get(query_id)]
    if changed:
        yield f"expected the folds' test runs together, found {len(changed)} topics otherwise: {examples(changed)}"


def _same_hash(what: str, expected: str, found: str) -> Iterator[str]:
    if expected != found:
        yield f"{what}: expected SHA-256 {expected[:12]}…, found {found[:12]}…"
