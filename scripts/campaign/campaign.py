"""The campaign: the kinds of trials take turns until the time is used; a table and a list of what broke."""

import importlib
import platform
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from rerank.evaluation.tables.table import Table, cells, render
from rerank.utils.errors import UserError, nearest
from rerank.utils.progress import log
from scripts.campaign.trials import KINDS, SkippedError, Trial, trial_folder
from scripts.campaign.world import UndisturbedError, World

MODULES = ("kills", "disks", "neighbours", "determinism")
for _name in MODULES:
    importlib.import_module(f"scripts.campaign.{_name}")
SECONDS_BETWEEN_LINES = 20.0


@dataclass
class Tally:
    """What has come of the trials of a campaign."""

    tried: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    reports: list[str] = field(default_factory=list)

    def line(self) -> str:
        """The trials so far in a line."""
        return f"{self.tried.total()} trials, {self.broken.total()} broken"


def run_campaign(
    minutes: float, seed: int, only: Sequence[str] = (), trials: int = 0, repeat: str = ""
) -> tuple[str, bool]:
    """Tries to break rerank for some minutes; returns the report, and whether everything held.

    `only` are the kinds to try. `trials` is the most of each kind; 0: no bound. `repeat` is one trial, such as
    kills:17. The trial that is at work when the time is over is finished; Ctrl-C ends the campaign at once. Raises
    UserError for an unknown kind.
    """
    kinds = _kinds(only, repeat)
    first = int(repeat.partition(":")[2]) if repeat else 0
    folder = Path(tempfile.mkdtemp(prefix="rerank-campaign-"))
    folder.chmod(0o755)  # for the trials as another user
    log.info(f"seed {seed}, in {folder}")
    begin = time.monotonic()
    world = World(folder)
    tally = Tally()
    spoken = begin
    try:
        while chosen := _next(kinds, tally, 1 if repeat else trials):
            if tally.tried.total() + tally.skipped.total() >= len(kinds) and time.monotonic() - begin > 60 * minutes:
                break
            _try(world, chosen, first + tally.tried[chosen] + tally.skipped[chosen], seed, tally)
            if time.monotonic() - spoken > SECONDS_BETWEEN_LINES:
                spoken = time.monotonic()
                log.info(f"{(spoken - begin) / 60:.1f} minutes: {tally.line()}")
    except KeyboardInterrupt:
        log.info("interrupted: the report is of the trials that have ended")
    finally:
        world.close()
        shutil.rmtree(folder)
    return _report(kinds, tally, seed, time.monotonic() - begin), not tally.reports


def _kinds(only: Sequence[str], repeat: str) -> list[str]:
    """The kinds to try; raises UserError for an unknown one."""
    kinds = [repeat.partition(":")[0]] if repeat else [name for part in only for name in part.split(",")]
    for name in kinds:
        if name not in KINDS:
            raise UserError(f"{name}: no such kind of trial; {nearest(name, KINDS)}")
    if repeat and not repeat.partition(":")[2].isdecimal():
        raise UserError(f"--trial {repeat}: expected a kind and a number, such as kills:17")
    return kinds or list(KINDS)


def _next(kinds: Iterable[str], tally: Tally, trials: int) -> str | None:
    """The kind that has had the least time; None if each has had its trials."""
    waiting = [name for name in kinds if not trials or tally.tried[name] + tally.skipped[name] < trials]
    return min(waiting, key=lambda name: tally.seconds[name], default=None)


def _try(world: World, name: str, number: int, seed: int, tally: Tally) -> None:
    """One trial, whose random numbers follow from the seed, the kind and the number."""
    begin = time.monotonic()
    try:
        with trial_folder(world, f"{name}{number}") as folder:
            trial = Trial(world, random.Random(f"{seed} {name} {number}"), folder)
            try:
                KINDS[name](trial)
            except UndisturbedError as error:
                trial.complain(f"without any fault: {error}")
    except SkippedError as reason:
        if not tally.skipped[name]:
            log.info(f"{name}: skipped: {reason}")
        tally.skipped[name] += 1
        return
    finally:
        tally.seconds[name] += max(time.monotonic() - begin, 1e-3)
    tally.tried[name] += 1
    if trial.complaints:
        tally.broken[name] += 1
        lines = [f"{name}:{number} broke; again: python -m scripts.campaign --seed {seed} --trial {name}:{number}"]
        lines += [f"    did: {step}" for step in trial.steps]
        lines += ["    saw: " + complaint.replace("\n", "\n         ") for complaint in trial.complaints]
        tally.reports.append("\n".join(lines))
        log.info(tally.reports[-1])


def _report(kinds: Iterable[str], tally: Tally, seed: int, seconds: float) -> str:
    """The table in Markdown, and every broken trial."""
    rows = [["kind", "tried", "held", "broken"]]
    totals = (tally.tried.total(), tally.broken.total())
    for name, tried, broken in [*((name, tally.tried[name], tally.broken[name]) for name in kinds), ("all", *totals)]:
        rows.append([name, f"{tried:,}", f"{tried - broken:,}", f"{broken:,}"])
    machine = f"{_processor()}, Python {platform.python_version()}, {datetime.now().astimezone():%Y-%m-%d}"
    title = f"Seed {seed}, {seconds / 60:.0f} minutes, {machine}"
    skipped = [f"{name}: {count} skipped" for name, count in tally.skipped.items()]
    return render(Table(title, [list(map(cells, rows))], notes=[*skipped, *tally.reports]), "markdown")


def _processor() -> str:
    """The name of the processor and how many cores there are."""
    import torch

    from rerank.training.device import device_name
    from rerank.utils.cores import count_cores

    return f"{count_cores()} cores of {device_name(torch.device('cpu'))}"
