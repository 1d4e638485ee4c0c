"""Malformed files for every reader: a value or one UserError, in bounded time and memory."""

import json

from scripts.campaign.forked import Command
from scripts.campaign.readers import READERS
from scripts.campaign.trials import Trial, kind

FILES = 40
"""Files of a trial, all for one reader."""
MEGABYTES = 500.0


@kind
def inputs(trial: Trial) -> None:
    """Random damage to a good file."""
    name = trial.rng.choice(list(READERS))
    command = Command((name, str(trial.rng.randrange(2**32)), str(FILES)), "scripts.campaign.readers:read_damaged")
    (ended,) = trial.run(trial.folder, command)
    if ended.code != 0:
        trial.complain(f"the reader of {name} ends the process", ended)
        return
    for what in json.loads(ended.out):
        trial.complain(f"{name}: {what}")
    if ended.megabytes > MEGABYTES:
        trial.complain(f"{name}: takes {ended.megabytes:.0f} MB", ended)
