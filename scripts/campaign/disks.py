"""Files that may not be larger, full disks and folders that may not be written: one line, and later the result."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.campaign.processes import Command
from scripts.campaign.trials import SkippedError, Trial
from scripts.campaign.world import CASES

PAGE = 4096
MANY = 10**9
REPORTS_FAILURES = ("sweep", "verify")
"""The commands with exit code 1 for what failed."""


def disks(trial: Trial) -> None:
    """A file that may not be larger, a full tmpfs, or a folder without the permission to write; then space again."""
    name = trial.rng.choice(list(CASES))
    trial.world.reference(CASES[name])  # made in the place that the trial is about to take
    how = trial.rng.choice([_largest_file, _full, _read_only])
    how(trial, name)


def _largest_file(trial: Trial, name: str) -> None:
    """EFBIG: in random places, as the limit is any number of bytes that a file of the tiny world has."""
    place = trial.copy(CASES[name].state)
    _refuse(trial, place, name, Command(CASES[name].words, largest_file=int(2 ** trial.rng.uniform(3, 19))))
    trial.completes(place, name)


def _full(trial: Trial, name: str) -> None:
    """ENOSPC, on a small tmpfs."""
    state = trial.world.state(CASES[name].state)
    place = trial.world.home
    place.mkdir()
    with _mounted(place):
        shutil.copytree(state, place, dirs_exist_ok=True, symlinks=True)
        free = PAGE * trial.rng.randint(0, 300)
        _mount("-o", f"remount,size={shutil.disk_usage(place).used + free}", str(place))
        trial.step(f"a file system with {free} bytes free")
        _refuse(trial, place, name, Command(CASES[name].words))
        _mount("-o", f"remount,size={MANY}", str(place))
        trial.completes(place, name)


def _read_only(trial: Trial, name: str) -> None:
    """EACCES: also for root, whom permissions do not stop otherwise."""
    place = trial.copy(CASES[name].state)
    folders = [place, *(path for path in place.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    trial.step("no folder may be written to")
    _refuse(trial, place, name, Command(CASES[name].words, obeys_permissions=True))
    for folder in folders:
        folder.chmod(0o755)
    trial.completes(place, name)


def _refuse(trial: Trial, place: Path, name: str, command: Command) -> None:
    (ended,) = trial.run(place, command)
    trial.refused(ended, command, (0, 1, 2) if name in REPORTS_FAILURES else (0, 2))
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
