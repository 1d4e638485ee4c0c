"""The campaign: the kinds of trials take turns until the time is used; a table and a list of what broke."""

import platform
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import torch
from cyclopts import Parameter

from rerank.evaluation.tables import Table, cells, render
from rerank.training.device import device_name
from rerank.utils.errors import UserError
from rerank.utils.parallel import count_cores
from rerank.utils.progress import log
from scripts.campaign.changes import changes
from scripts.campaign.determinism import determinism
from scripts.campaign.disks import disks
from scripts.campaign.kills import kills
from scripts.campaign.neighbours import neighbours
from scripts.campaign.strangers import hostile, links
from scripts.campaign.threads import threads
from scripts.campaign.trials import SkippedError, Trial, trial_folder
from scripts.campaign.world import UndisturbedError, World
from scripts.command_line import open_app, run_app

Kind = Literal["kills", "disks", "neighbours", "determinism", "links", "hostile", "threads", "changes"]
KINDS = {kind.__name__: kind for kind in (kills, disks, neighbours, determinism, links, hostile, threads, changes)}
"""Every kind of trial, in the order in which they take turns."""
SECONDS_BETWEEN_LINES = 20.0

app = open_app(
    "python -m scripts.campaign",
    "Tries to break rerank with kills, full disks, neighbours and hostile folders at random, and reports what broke.",
)


@dataclass
class Tally:
    """What has come of the trials of a campaign."""

    tried: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    reports: list[str] = field(default_factory=list)


@app.default
def campaign(
    *,
    minutes: float = 30.0,
    seed: int | None = None,
    only: Annotated[
        tuple[Kind, ...],
        Parameter(consume_multiple=True, negative=()),
    ] = (),
    trials: int = 0,
    trial: str = "",
) -> None:
    """Tries to break rerank, and prints what it tried, what held and what broke; exit code 1 if anything broke.

    Ctrl-C ends the campaign at once.

    Parameters
    ----------
    minutes
        When it ends; the trial at work is finished, and each kind has at least one.
    seed
        Of the random numbers; default: a new one, which is printed.
    only
        Kinds of trials; default: all.
    trials
        The most trials of a kind; 0: no bound.
    trial
        One trial alone, by its kind and number, such as kills:17.
    """
    kinds, first = list(only or KINDS), 0
    if trial:
        kind, _, number = trial.partition(":")
        if kind not in KINDS or not number.isdecimal():
            raise UserError(f"--trial {trial}: expected a kind and a number, such as kills:17")
        kinds, first, trials = [kind], int(number), 1
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    begin, tally = time.monotonic(), Tally()
    _try_all(kinds, first, trials, seed, begin + 60 * minutes, tally)
    print(_report(kinds, tally, seed, time.monotonic() - begin), end="", flush=True)
    sys.exit(1 if tally.reports else 0)


def _try_all(kinds: Sequence[str], first: int, most: int, seed: int, end: float, tally: Tally) -> None:
    """Tries the kind that has had the least time, again and again; the numbers of trials begin with `first`."""
    folder = Path(tempfile.mkdtemp(prefix="rerank-campaign-"))
    log.info(f"seed {seed}, in {folder}")
    spoken = time.monotonic()
    try:
        world = World(folder)
        ended = tally.tried + tally.skipped
        while waiting := [name for name in kinds if not most or ended[name] < most]:
            if ended.total() >= len(kinds) and time.monotonic() > end:
                break
            kind = min(waiting, key=lambda name: tally.seconds[name])
            _try(world, kind, first + ended[kind], seed, tally)
            ended = tally.tried + tally.skipped
            if time.monotonic() - spoken > SECONDS_BETWEEN_LINES:
                spoken = time.monotonic()
                log.info(f"{tally.tried.total()} trials, {tally.broken.total()} broken")
    except KeyboardInterrupt:
        log.info("interrupted: the report is of the trials that have ended")
    finally:
        shutil.rmtree(folder)


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
    processor = f"{count_cores()} cores of {device_name(torch.device('cpu'))}"
    machine = f"{processor}, Python {platform.python_version()}, {datetime.now().astimezone():%Y-%m-%d}"
    title = f"Seed {seed}, {seconds / 60:.0f} minutes, {machine}"
    skipped = [f"{name}: {count} skipped" for name, count in tally.skipped.items()]
    broke = "".join(f"\n{report}\n" for report in tally.reports)  # of several lines, which no table has
    return render(Table(title, [list(map(cells, rows))], notes=skipped), "markdown") + broke


main = partial(run_app, app)
