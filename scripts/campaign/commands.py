"""The command line of the campaign."""

import random
import sys
from functools import partial
from typing import Annotated

from cyclopts import Parameter

from scripts.command_line import open_app, run_app

app = open_app(
    "python -m scripts.campaign",
    "Tries to break rerank with kills, full disks and neighbours at random, and reports what broke.",
)


@app.default
def campaign(
    *,
    minutes: float = 30.0,
    seed: int | None = None,
    only: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative=())] = (),
    trials: int = 0,
    trial: str = "",
) -> None:
    """Tries to break rerank, and prints what it tried, what held and what broke; exit code 1 if anything broke.

    Parameters
    ----------
    minutes
        When it ends; the trial at work is finished, and each kind has at least one.
    seed
        Of the random numbers; default: a new one, which is printed.
    only
        Kinds of trials: kills, disks, neighbours, determinism; default: all.
    trials
        The most trials of a kind; 0: no bound.
    trial
        One trial alone, by its kind and number, such as kills:17.
    """
    from scripts.campaign.campaign import run_campaign

    chosen = random.SystemRandom().randrange(10**6) if seed is None else seed
    report, held = run_campaign(minutes, chosen, only, trials, trial)
    print(report, end="")
    sys.stdout.flush()
    sys.exit(0 if held else 1)


main = partial(run_app, app)
