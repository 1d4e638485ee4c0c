"""Commands that are killed at random moments, several times: the next one gives what an undisturbed one gives."""

import signal

from scripts.campaign.processes import Command, Ended
from scripts.campaign.trials import Trial
from scripts.campaign.world import CASES

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
MOST = 3
"""Kills of one trial."""


def kills(trial: Trial) -> None:
    """Kill -9, SIGTERM, SIGHUP and Ctrl-C; then the same command again."""
    name = trial.rng.choice(list(CASES))
    case = CASES[name]
    reference = trial.world.reference(case)
    place = trial.copy(case.state)
    gentle = True
    for _ in range(trial.rng.randint(1, MOST)):
        number = trial.rng.choice(SIGNALS)
        gentle &= number != signal.SIGKILL
        after = 1.1 * trial.rng.random() ** 0.5 * reference.ended.seconds  # seldom early, when it imports
        command = Command(case.words, signals=((after, int(number)),))
        (ended,) = trial.run(place, command)
        if not (ended.code == -number and ended.out == reference.ended.out):  # by the signal, but after its work
            _check(trial, ended, number, command)
        if number != signal.SIGKILL:
            trial.clean(place, f"{name}: {number.name}")
    trial.completes(place, name)
    temporary = list((trial.world.folder / "temporary").iterdir())
    if gentle and temporary:
        trial.complain(f"{name}: leaves {temporary[0].name} in the folder for temporary files")


def _check(trial: Trial, ended: Ended, number: signal.Signals, command: Command) -> None:
    """Complains unless the command was ended by the signal as promised, or had ended before."""
    last = (ended.err.splitlines() or [""])[-1]
    early = ended.code == -number and not last  # before the command handles signals
    if ended.code == 0 or early:
        return
    if number == signal.SIGKILL:
        if ended.code != -number:
            trial.complain(f"expected an end by SIGKILL: {command}", ended)
    elif ended.code != 128 + number or "the same command goes on from here" not in last:
        trial.complain(f"expected exit code {128 + number} and one line: {command}", ended)
