"""Commands that are started together in a new folder: none fails, and each gives its reference result."""

from scripts.campaign.contents import contents
from scripts.campaign.processes import Command
from scripts.campaign.trials import Trial
from scripts.campaign.world import CASES, TRAIN, Case

TOGETHER = 8
STATE = "shared"
COMMANDS = {
    "retrieve": CASES["retrieve"].words,
    "train": (*TRAIN, "--epochs", "1"),
    "score": ("score", "model", "--collection", "towns", "--out", "new.run"),
}
"""Three kinds of commands that share the index, the first stage, the tokens or an experiment."""


def neighbours(trial: Trial) -> None:
    """Eight commands of three kinds at once."""
    names = [*COMMANDS, *(trial.rng.choice(list(COMMANDS)) for _ in range(TOGETHER - len(COMMANDS)))]
    trial.rng.shuffle(names)
    references = {name: trial.world.reference(Case(STATE, COMMANDS[name])) for name in COMMANDS}
    expected: dict[str, str] = {}
    for reference in references.values():
        expected |= reference.contents
    place = trial.copy(STATE)
    commands = []
    for number, name in enumerate(names):
        words = COMMANDS[name]
        if name == "score":  # each writes a file of its own, with its name as the tag
            (place / str(number)).mkdir()
            words = (*words[:-1], f"{number}/new.run")
        commands.append(Command(words))
    for name, command, ended in zip(names, commands, trial.run(place, *commands), strict=True):
        out = references[name].ended.out.replace("new.run", command.words[-1]) if name == "score" else None
        if ended.code != 0 or ended.out != (out or references[name].ended.out):
            trial.complain(f"{name}, with {TOGETHER - 1} others: expected what it prints alone", ended)
    found = contents(place)
    for number, name in enumerate(names):
        if name == "score" and found.get(f"{number}/new.run") != expected["new.run"]:
            trial.complain(f"{number}/new.run differs from the reference")
    own = {name for name in found if name.split("/")[0].isdigit()}
    trial.same(place, expected, "together", own | {"new.run", "new.run.json"})
    trial.clean(place, "together")
