"""Folders that a stranger has made: with links out of them, and with files that are no files or of the wrong types."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from scripts.campaign.contents import contents
from scripts.campaign.processes import Command
from scripts.campaign.trials import Trial
from scripts.campaign.world import CASES

READING = ("score", "report", "plot", "eval", "verify")
"""The commands that read a folder of runs."""
SECONDS = 120.0
"""A command that takes longer hangs; the start of one alone may take ten seconds on a busy machine."""
WRONG = (None, True, -1, 10**9, 10**18, 1.5, "x", "../../victim", "/dev/zero", [], {}, {"x": [1]})
SIZES = ("num_hidden_layers", "num_labels", "vocab_size", "hidden_size", "max_position_embeddings")


def links(trial: Trial) -> None:
    """A file or folder in a folder that the commands name becomes a link to a copy outside, which must not change."""
    place, victim = trial.copy("trained"), trial.folder / "victim"
    path = trial.rng.choice(sorted(one for one in (place / "runs" / "towns").rglob("*") if one.suffix != ".lock"))
    victim.mkdir()
    (shutil.copytree if path.is_dir() else shutil.copy)(path, victim / path.name)
    _remove(path)
    path.symlink_to(victim / path.name)
    trial.step(f"{path.relative_to(place)} is a link to a copy outside")
    _read(trial, place, victim)


def hostile(trial: Trial) -> None:
    """A file becomes a FIFO, a device, a link to a private file, or JSON with other types and sizes."""
    place, victim = trial.copy("trained"), trial.folder / "victim"
    victim.mkdir()
    (victim / "private").write_text("q1 Q0 private 1 1.0 secret\n")
    files = sorted(one for one in (place / "runs").rglob("*") if one.is_file() and one.suffix != ".lock")
    jsons = [file for file in files if file.suffix == ".json" and "index" not in file.parts]
    if trial.rng.random() < 0.5:
        file = trial.rng.choice(jsons)
        _retype(trial, file)
    else:
        file = trial.rng.choice(files)
        makers: dict[str, Callable[[Path], None]] = {
            "a FIFO": os.mkfifo,
            "a link to /dev/zero": lambda one: one.symlink_to("/dev/zero"),
            "a link to a private file": lambda one: one.symlink_to(victim / "private"),
            "a link to itself": lambda one: one.symlink_to(one.name),
        }
        what = trial.rng.choice(list(makers))
        file.unlink()
        makers[what](file)
        trial.step(f"{file.relative_to(place)} is {what}")
    _read(trial, place, victim)


def _retype(trial: Trial, file: Path) -> None:
    """Gives a value of a JSON file another type or size; a size is often one of a model."""
    content = json.loads(file.read_text())
    value, holder = trial.rng.choice(WRONG), content
    while isinstance(holder, dict | list) and holder:
        keys = (
            [*holder, *(SIZES if file.name == "config.json" else ())]
            if isinstance(holder, dict)
            else range(len(holder))
        )
        key = trial.rng.choice(list(keys))
        inner = holder.get(key) if isinstance(holder, dict) else holder[key]
        if not (isinstance(inner, dict | list) and inner) or trial.rng.random() < 0.3:
            holder[key] = value
            trial.step(f"{file.name}: {key} = {value!r}")
            break
        holder = inner
    file.write_text(json.dumps(content))


def _read(trial: Trial, place: Path, victim: Path) -> None:
    """Every command that reads ends well or with one line; what is outside stays as it is, and is not shown."""
    before = contents(victim)
    for name in READING:
        command = Command(CASES[name].words, limit=SECONDS)
        (ended,) = trial.run(place, command)
        if ended.code not in (0, 1 if name == "verify" else 0):
            trial.refused(ended, command)
        if "secret" in ended.out + ended.err:
            trial.complain(f"shows a private file: {command}", ended)
    if contents(victim) != before:
        trial.complain("changes what is outside the folder")


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
