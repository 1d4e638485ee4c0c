"""Files that may not be larger, full disks and folders that may not be written: one line, and later the result."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.campaign.forked import Command
from scripts.campaign.trials import SkippedError, Trial, kind
from scripts.campaign.world import CASES, Reference

NOBODY = 65534
PAGE = 4096
MANY = 10**9
REPORTS_FAILURES = ("sweep", "verify")
"""The commands with exit code 1 for what failed."""


@kind
def disks(trial: Trial) -> None:
    """A file that may not be larger, a full tmpfs, or a folder without the permission to write; then space again."""
    name = trial.rng.choice(list(CASES))
    case = CASES[name]
    reference = trial.world.reference(case)
    how = trial.rng.choice([_largest_file, _full, _read_only])
    how(trial, name, reference)


def _largest_file(trial: Trial, name: str, reference: Reference) -> None:
    """EFBIG: in random places, as the limit is any number of bytes that a file of the tiny world has."""
    place = trial.copy(CASES[name].state)
    _refuse(trial, place, name, Command(CASES[name].words, largest_file=int(2 ** trial.rng.uniform(3, 19))))
    _complete(trial, place, name, reference)


def _full(trial: Trial, name: str, reference: Reference) -> None:
    """ENOSPC, on a small tmpfs."""
    state = trial.world.state(CASES[name].state)
    place = trial.world.home
    place.mkdir()
    with _mounted(place):
        shutil.copytree(state, place, dirs_exist_ok=True, symlinks=True)
        free = PAGE * trial.rng.randint(0, 300)
        _mount("-o", f"remount,size={_used(place) + free}", str(place))
        trial.step(f"a file system with {free} bytes free")
        _refuse(trial, place, name, Command(CASES[name].words))
        _mount("-o", f"remount,size={MANY}", str(place))
        _complete(trial, place, name, reference)


def _read_only(trial: Trial, name: str, reference: Reference) -> None:
    """EACCES: as another user, if this one is root, whom no permission stops."""
    place = trial.copy(CASES[name].state)
    folders = [place, *(path for path in place.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    trial.step("no folder may be written to")
    _refuse(trial, place, name, Command(CASES[name].words, user=NOBODY if os.getuid() == 0 else 0))
    for folder in folders:
        folder.chmod(0o755)
    _complete(trial, place, name, reference)


def _refuse(trial: Trial, place: Path, name: str, command: Command) -> None:
    (ended,) = trial.run(place, command)
    trial.refused(ended, command, (0, 1, 2) if name in REPORTS_FAILURES else (0, 2))
    trial.clean(place, name)


def _complete(trial: Trial, place: Path, name: str, reference: Reference) -> None:
    """The same command again, which nothing stops."""
    command = Command(CASES[name].words)
    (ended,) = trial.run(place, command)
    if "already exists" in ended.err and name == "pretrain":
        trial.refused(ended, command)
    elif ended.code != 0 or ended.out != reference.ended.out:
        trial.complain(f"{name}: expected what an undisturbed command prints", ended)
    trial.same(place, reference.contents, name)
    trial.clean(place, name)


@contextmanager
def _mounted(place: Path) -> Iterator[None]:
    """A tmpfs at `place`; raises SkippedError where this user may not mount one."""
    try:
        _mount("-t", "tmpfs", "-o", f"size={MANY}", "none", str(place))
    except (OSError, subprocess.CalledProcessError):
        raise SkippedError("a full disk: a tmpfs cannot be mounted here") from None
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


def _used(place: Path) -> int:
    usage = shutil.disk_usage(place)
    return usage.used
