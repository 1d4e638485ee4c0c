"""Inputs that change after a fit or while it works: no command takes the result of other inputs for that of these."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from safetensors.numpy import load_file, save_file

from rerank.experiments.runs.layout import MANIFEST
from scripts.campaign.contents import contents, differences
from scripts.campaign.processes import Command
from scripts.campaign.trials import Trial
from scripts.campaign.world import FITS, INDEX, OWN_INDEX, PIPELINE, RANK
from tests.support.small_world import WORDS

DURING = 0.4
"""Share of the changes of files that happen while the fit works."""
SAME = "is already fitted"
UNUSED = "encoder encoder: changed since the fit"
"""What `rerank verify` says of an encoder that was tried, and that the stage that answers does not use."""
REPLACE = """
import os, sys, time
time.sleep(float(sys.argv[1]))
os.replace(sys.argv[2], sys.argv[3])
"""
PROGRAM = (sys.executable, "-c", REPLACE)
"""A program that puts a file in the place of another after some seconds."""

Lines = list[str]


@dataclass(frozen=True)
class Change:
    """A change of one input of a fit.

    file: what changes; "" for the language, where only the flag changes. edit: gives the changed lines of the file;
    None: see `_write_changed`. verify: what `rerank verify` says of it. refused: whether `rerank search` refuses a
    pipeline of the old inputs. state: the state that it happens to; "": any.
    """

    file: str = ""
    edit: Callable[[Random, Lines], Lines] | None = None
    verify: str = ""
    refused: bool = False
    state: str = ""


def changes(trial: Trial) -> None:
    """An input changes; a command reads the pipeline of the old inputs; `fit` gives that of the new ones."""
    name = trial.rng.choice(list(CHANGES))
    change, new = CHANGES[name], trial.folder / "new"
    state = change.state or trial.rng.choice(list(FITS))
    trial.step(f"changes {name} ({state})")
    _write_changed(trial, change, new)
    language = () if change.file else ("--collection.language", trial.rng.choice(["de", "fr"]))
    fit = Command((*FITS[state], *language))
    expected = _fit_anew(trial, change, new, fit)
    if change.file and new.is_file() and trial.rng.random() < DURING:
        place, old = trial.copy("retrieved"), Command(FITS[state])
        after = trial.rng.uniform(0, 1.1) * expected.seconds
        ended, _ = trial.run(place, old, Command((f"{after:.2f}", str(new), change.file), PROGRAM))
        if ended.code != 0:
            trial.refused(ended, old)
    else:
        place = trial.copy(state)
        _put(change, new, place)
        _read_old(trial, place, change)
        (ended,) = trial.run(place, fit)
        if ended.code != 0 or SAME in ended.err:
            trial.complain(f"expected a new fit: {fit}", ended)
    found = _fit(trial, place, fit)
    if lines := differences(expected.contents, found.contents, set()):
        trial.complain(f"other contents than a first fit of the changed inputs: {'; '.join(lines)}")
    trial.clean(place, "fit")


@dataclass(frozen=True)
class Fitted:
    """The files of a pipeline and of its ranking of all queries, and the seconds that the fit took."""

    contents: dict[str, str]
    seconds: float


def _fit_anew(trial: Trial, change: Change, new: Path, fit: Command) -> Fitted:
    """A first fit on the changed inputs."""
    place = trial.copy("retrieved")
    _put(change, new, place)
    found = _fit(trial, place, fit)
    shutil.rmtree(place)
    return found


def _fit(trial: Trial, place: Path, fit: Command) -> Fitted:
    """A fit, and the ranking of all queries with its pipeline; both must end well."""
    rank = Command(RANK)
    (ended,) = trial.run(place, fit)
    (ranked,) = trial.run(place, rank)
    for command, one in ((fit, ended), (rank, ranked)):
        if one.code != 0:
            trial.complain(f"expected exit code 0: {command}", one)
    run = place / "answer.run"
    answer = {run.name: run.read_text() if run.is_file() else ""}
    return Fitted(contents(place / PIPELINE) | answer, ended.seconds)


def _read_old(trial: Trial, place: Path, change: Change) -> None:
    """Of the old pipeline, `verify` names the change, and other commands refuse it if its documents are others."""
    reading = [("verify", PIPELINE), *([RANK, ("search", PIPELINE, WORDS[0])] if change.refused else [])]
    command = Command(trial.rng.choice(reading) if change.file else RANK)
    (ended,) = trial.run(place, command)
    is_used = change.edit is not None or _uses_encoder(place)  # the stage that answers may need no encoder
    if change.refused and command.words[0] != "verify":
        if is_used:
            trial.refused(ended, command)
        elif ended.code != 0:
            trial.complain(f"expected exit code 0, as it uses no encoder: {command}", ended)
        return
    expected = change.verify if is_used or not change.refused else UNUSED
    if change.file and (ended.code not in (1, 2) or expected not in ended.out + ended.err):
        trial.complain(f"expected that it says {expected!r}: {command}", ended)


def _uses_encoder(place: Path) -> bool:
    """Whether the stage that answers, or one that it needs, encodes texts."""
    return bool(json.loads((place / PIPELINE / MANIFEST).read_text())["pipeline"]["encoders"])


def _write_changed(trial: Trial, change: Change, new: Path) -> None:
    """Writes what takes the place of the file: changed lines, an index of other documents, or other weights."""
    old = trial.world.state("retrieved") / change.file
    if change.edit is not None:
        lines = change.edit(trial.rng, old.read_text().splitlines())
        new.write_text("".join(f"{line}\n" for line in lines))
    elif change.file == INDEX:
        shutil.copytree(next((trial.world.state("of other documents") / OWN_INDEX).glob("*/")), new)
    elif change.file:
        weights = load_file(old)
        for weight in weights.values():
            weight += trial.rng.gauss(0, 0.1)
        save_file(weights, new, {"format": "pt"})


def _put(change: Change, new: Path, place: Path) -> None:
    """Puts what has changed into a folder."""
    if new.is_dir():
        shutil.rmtree(place / change.file)
        shutil.copytree(new, place / change.file)
    elif change.file:
        shutil.copy(new, place / change.file)


def _other_text(rng: Random, lines: Lines) -> Lines:
    """Another text for one line of a JSONL file; often of the same length."""
    lines, place = list(lines), rng.randrange(len(lines))
    values = json.loads(lines[place])
    words = values["text"].split()
    values["text"] = " ".join(reversed(words) if len(words) > 1 and rng.random() < 0.5 else [*words, rng.choice(WORDS)])
    if values == json.loads(lines[place]):
        values["text"] += " good"
    lines[place] = json.dumps(values)
    return lines


def _fewer(rng: Random, lines: Lines) -> Lines:
    """One line less."""
    place = rng.randrange(1, len(lines))
    return [*lines[:place], *lines[place + 1 :]]


def _one_more(rng: Random, lines: Lines) -> Lines:
    """One document more: one that is missing could be in the file of the run, which ends a fit."""
    return [*lines, json.dumps({"_id": "new", "text": " ".join(rng.choices(WORDS, k=9))})]


def _other_grade(rng: Random, lines: Lines) -> Lines:
    """Another grade for one judgment."""
    lines, place = list(lines), rng.randrange(1, len(lines))
    judged, grade = lines[place].rsplit("\t", 1)
    lines[place] = f"{judged}\t{1 - int(grade)}"
    return lines


def _other_score(rng: Random, lines: Lines) -> Lines:
    """Another score for one line of a run."""
    lines, place = list(lines), rng.randrange(len(lines))
    words = lines[place].split()
    lines[place] = " ".join([*words[:4], f"{float(words[4]) + rng.choice([-1.5, 1.5, 2.5]):.1f}", words[5]])
    return lines


CHANGES = {
    "the text of a query": Change("towns/queries.jsonl", _other_text, "queries: changed since the fit"),
    "a judgment": Change("towns/qrels/test.tsv", _other_grade, "judgments: changed since the fit"),
    "which documents are judged": Change("towns/qrels/test.tsv", _fewer, "judgments: changed since the fit"),
    "the text of a document": Change("towns/corpus.jsonl", _other_text, "documents of towns have changed", True),
    "which documents there are": Change("towns/corpus.jsonl", _one_more, "documents of towns have changed", True),
    "the file of a run": Change("kept.run", _other_score, "kept.run: changed since the fit"),
    "the weights of the encoder": Change("encoder/model.safetensors", None, "encoder have changed", True),
    "the index": Change(INDEX, None, "index index: changed since the fit", False, "fitted on an index"),
    "the language": Change(),
}
"""Every change that a trial makes, by name."""
