"""The same command twice, the second time killed and resumed beside other processes: the same bytes."""

import random
import signal
import sys

from scripts.campaign.contents import contents
from scripts.campaign.processes import Command
from scripts.campaign.trials import Trial
from scripts.campaign.world import FIRST

BUSY = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    sum(range(1000))
"""
"""A program that keeps a core busy for some seconds."""


def determinism(trial: Trial) -> None:
    """A training with random settings."""
    words = (*FIRST, *_settings(trial.rng))
    places = [trial.copy("retrieved", name) for name in ("first", "second")]
    (first,) = trial.run(places[0], Command(words))
    if first.code != 0:
        trial.complain(f"expected exit code 0: {words}", first)
        return
    after = trial.rng.uniform(0.2, 1) * first.seconds
    signals = ((after, int(signal.SIGKILL)),) if trial.rng.random() < 0.7 else ()
    neighbours = [
        Command((f"{trial.rng.uniform(0, 1.5) * first.seconds:.1f}",), (sys.executable, "-c", BUSY)) for _ in range(2)
    ]
    trial.run(places[1], Command(words, signals=signals), *neighbours)
    (second,) = trial.run(places[1], Command(words))
    if (second.code, second.out) != (first.code, first.out):
        trial.complain(f"expected what the first command printed: {first.out}", second)
    trial.same(places[1], contents(places[0]), "the second time")


def _settings(rng: random.Random) -> list[str]:
    """Flags of `rerank train` that fit every collection."""
    from rerank.losses import LABELS
    from rerank.models.pooling import POOLINGS

    losses = [name for name, labels in LABELS.items() if labels == "judgments"]  # others need a teacher's scores
    flags = {
        "--loss": rng.choice(losses),
        "--seed": rng.randrange(2**31),
        "--encoder.pooling": rng.choice(list(POOLINGS)),
        "--encoder.max-doc-tokens": rng.choice([5, 30, 200, 600]),
        "--depth": rng.choice([2, 5, 20]),
        "--lists.relevant": rng.choice([1, 2]),
        "--lists.non-relevant": rng.choice([1, 3, "all"]),
        "--training.max-tokens-per-forward": rng.choice([64, 500, 4096]),
        "--training.measure": rng.choice(["nDCG@5", "AP", "loss"]),
        "--training.clip": rng.choice([0, 0.5]),
    }
    return [str(word) for flag in flags.items() for word in flag]
