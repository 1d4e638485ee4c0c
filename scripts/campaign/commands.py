"""The command line of the campaign."""

import random
import sys
from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, Parameter

from rerank.cli.main import run_and_exit

app = App(
    name="python -m scripts.campaign",
    help="Tries to break rerank with kills, full disks, damage and neighbours at random, and reports what broke.",
    help_format="plaintext",
    help_on_error=False,
    result_action="return_value",
    suppress_keyboard_interrupt=False,
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
        Kinds of trials: kills, disks, damage, neighbours, determinism; default: all.
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line of the campaign."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    run_and_exit(lambda: app(words, exit_on_error=False, print_error=False))
