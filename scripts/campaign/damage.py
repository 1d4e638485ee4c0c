"""Any file of a folder of runs, damaged: a command gives the reference result, or says what is wrong in one line."""

import shutil
from pathlib import Path

from scripts.campaign.contents import contents, differences
from scripts.campaign.forked import Command
from scripts.campaign.trials import Trial, kind
from scripts.campaign.world import CASES, CHECKPOINT, FIRST, TRAIN, Case
from tests.support.damaged_bytes import damaged

COMMANDS = {
    "trained": {
        "train": (*TRAIN,),
        "train another": (*FIRST, "--name", "another"),
        **{name: CASES[name].words for name in ("report", "plot", "eval", "score", "score what BM25 finds", "push")},
        "plot gain": ("plot", "gain", "runs/towns/smoothi", "--out", "gain.svg"),
        "eval a fold": ("eval", f"{CHECKPOINT}/../test.run", "runs/towns/bm25.run", "--fold", "1", "--details"),
    },
    "unfinished": {
        "train": FIRST,
        "train another": (*FIRST, "--name", "another"),
        "retrieve": CASES["retrieve"].words,
    },
    "features trained": {
        "train": ("train", "--config", "letor.toml", "--fold", "1"),
        "train another": ("train", "--config", "letor.toml", "--fold", "2"),
        "report": ("report", "runs/letor"),
        "eval": ("eval", "runs/letor/smoothi/fold1/test.run"),
    },
}
"""The commands that read the files of each state."""
VERIFY = {
    "trained": Command(("verify", "runs/towns")),
    "unfinished": Command(("verify", "runs/towns")),
    "features trained": Command(("verify", "runs/letor")),
}
SHARE_REMOVED = 0.12


@kind
def damage(trial: Trial) -> None:
    """One file is damaged; what is found only by `rerank verify` is held too, as no other command computes hashes."""
    state = trial.rng.choice(list(COMMANDS))
    name = trial.rng.choice(list(COMMANDS[state]))
    words = COMMANDS[state][name]
    reference = trial.world.reference(Case(state, words))
    place = trial.copy(state)
    file = trial.rng.choice(_files(place))
    _damage(trial, place, file)
    before = trial.folder / "before"
    shutil.copytree(place, before)
    command = Command(words)
    (ended,) = trial.run(place, command)
    trial.refused(ended, command, (0, 2))
    (verified,) = trial.run(before, VERIFY[state])
    trial.refused(verified, VERIFY[state], (0, 1, 2))
    found = verified.code != 0 and state != "unfinished"  # there, no result is to be verified yet
    if ended.code == 0 and not found:
        changed = differences(reference.contents, contents(place), {file.as_posix()})
        if changed or ended.out != reference.ended.out:
            what = "; ".join(changed[:5]) or "it prints another result"
            trial.complain(f"another result in silence, and `rerank verify` finds nothing: {what}", ended)


def _files(place: Path) -> list[Path]:
    """The files of the folder of runs, relative to `place`; locks are left out."""
    files = [path.relative_to(place) for path in (place / "runs").rglob("*") if path.is_file()]
    return sorted(path for path in files if path.suffix != ".lock")


def _damage(trial: Trial, place: Path, file: Path) -> None:
    if trial.rng.random() < SHARE_REMOVED:
        (place / file).unlink()
        trial.step(f"{file}: removed")
        return
    content, what = damaged((place / file).read_bytes(), trial.rng)
    (place / file).write_bytes(content)
    trial.step(f"{file}: {what}")
