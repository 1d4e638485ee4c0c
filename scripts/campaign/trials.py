"""A trial: commands in a folder of their own, and what is found wrong with them."""

import contextlib
import os
import random
import re
import shutil
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from scripts.campaign.contents import contents, differences
from scripts.campaign.processes import Command, Ended
from scripts.campaign.world import CASES, World

NOISE = re.compile(
    r"Traceback \(most recent|Exception ignored|Fatal Python error|resource_tracker|SIGSEGV|hs_err_pid|"
    r"terminate called|Error in sys\.excepthook|\n\s+at (org|java|io)\."
)
"""What no command may print, whatever happens to it."""
LEFTOVERS = re.compile(r"\..+\.(part|old)|hs_err_pid.*|core(\.\d+)?")
SHOWN = 1500
"""Characters at the end of what a broken command printed that are shown."""


class SkippedError(Exception):
    """A trial that this system does not allow; the message says why."""


@dataclass
class Trial:
    """One trial: its random numbers, its folder, the commands so far, and what is wrong; nothing if it held."""

    world: World
    rng: random.Random
    folder: Path
    steps: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def complain(self, what: str, ended: Ended | None = None) -> None:
        """Notes that something is wrong, and the end of what the command printed."""
        if ended is not None:
            printed = (ended.out + ended.err)[-SHOWN:].strip()
            what = f"{what}; exit code {ended.code} after {ended.seconds:.2f} s, printed: {printed or 'nothing'}"
        self.complaints.append(what)

    def step(self, what: str) -> None:
        """Notes what is done to the files, for the report of a broken trial."""
        self.steps.append(what)

    def copy(self, state: str, name: str = "") -> Path:
        """A copy of a state of the world: in the world's home, or in another new folder, of this name."""
        place = self.folder / name if name else self.world.home
        shutil.copytree(self.world.state(state), place, symlinks=True)
        return place

    def run(self, place: Path, *commands: Command) -> list[Ended]:
        """Runs commands together; whatever they are, none hangs, prints a traceback or leaves a process behind."""
        self.steps += map(str, commands)
        found = self.world.run(place, *commands)
        for command, ended in zip(commands, found, strict=True):
            if ended.hung:
                self.complain(f"hangs: {command}", ended)
            elif match := NOISE.search(ended.out + ended.err):
                self.complain(f"prints {match[0].strip()!r}: {command}", ended)
            if ended.orphans and not any(number == signal.SIGKILL for _, number in command.signals):
                self.complain(f"leaves a process behind: {command}", ended)
        return found

    def refused(self, ended: Ended, command: Command, codes: Iterable[int] = (2,)) -> None:
        """Complains unless the command ended with one of these exit codes, and with one line that says why."""
        lines = ended.err.strip().splitlines() or [""]
        if ended.code not in codes:
            self.complain(f"expected exit code {' or '.join(map(str, codes))}: {command}", ended)
        elif ended.code == 2 and not lines[-1].startswith("rerank: "):
            self.complain(f"expected a last line that says what is wrong: {command}", ended)

    def completes(self, place: Path, name: str) -> None:
        """Runs a case's command, which nothing disturbs any more; it gives what it gives in its own state."""
        command, reference = Command(CASES[name].words), self.world.reference(CASES[name])
        (ended,) = self.run(place, command)
        if ended.code != 0 or ended.out != reference.ended.out:
            self.complain(f"{name}: expected what an undisturbed command prints", ended)
        self.same(place, reference.contents, name)
        self.clean(place, name)

    def same(self, place: Path, expected: dict[str, str], what: str, without: Iterable[str] = ()) -> None:
        """Complains unless a folder has the expected contents."""
        found = differences(expected, contents(place), set(without))
        if found:
            self.complain(f"{what}: other contents than the reference: {'; '.join(found[:5])}")

    def clean(self, place: Path, what: str) -> None:
        """Complains about temporary files that are still there."""
        if left := [str(path.relative_to(place)) for path in place.rglob("*") if LEFTOVERS.fullmatch(path.name)]:
            self.complain(f"{what}: leaves {', '.join(left[:3])} behind")


@contextlib.contextmanager
def trial_folder(world: World, name: str) -> Iterator[Path]:
    """The folder of a trial. It and the world's home are removed after the block, also what may not be written."""
    folder = world.folder / "trials" / name
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        for place in (folder, world.home):
            for path in [place, *place.rglob("*")]:
                if path.is_dir() and not os.access(path, os.W_OK):
                    path.chmod(0o755)
            shutil.rmtree(place, ignore_errors=not place.exists())
