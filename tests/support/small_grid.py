"""A grid of two losses on the small collection, and jobs for workers."""

import os
import signal
import time
from pathlib import Path

from rerank.utils.errors import UserError
from rerank.utils.parallel import outcome
from rerank.utils.plugins import named_plugins
from tests.support.patience import SECONDS, until

GRID = """
config = "towns.toml"
[[grid]]
"loss.name" = "smoothi"
"loss.metric" = ["ndcg@10", "p@1"]
"training.lr" = 1e-3
[[grid]]
loss.name = "hinge"
training.lr = 1e-3
"""
CELLS = [
    "hinge-lr=0.001",
    "smoothi-metric=ndcg_10-lr=0.001",
    "smoothi-metric=p_1-lr=0.001",
]


def work_here(function, jobs, workers, gpus):
    """Does the jobs in this process, in the place of `rerank.utils.parallel.work`."""
    return ((job, outcome(function, job)) for job in jobs)


def job(word: str) -> None:
    """What the workers are given: each word is one way to end."""
    if word == "wrong":
        raise UserError("a mistake")
    if word == "named":
        raise UserError(" ".join(named_plugins()))
    if word == "broken":
        raise ZeroDivisionError("a fault")
    if word == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if word.startswith("until "):
        wait_for_go(Path(word.removeprefix("until ")))
    if word.startswith("gpu "):
        Path(word.removeprefix("gpu ")).write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
    if word.startswith("wait "):
        begun = Path(word.removeprefix("wait "))
        begun.with_suffix(f".{os.getpid()}").touch()
        deadline = time.monotonic() + SECONDS
        try:
            while time.monotonic() < deadline:  # Ray interrupts between two steps of Python
                time.sleep(0.05)
        except KeyboardInterrupt:
            begun.with_suffix(f".{os.getpid()}").write_text("interrupted")
            raise


def wait_for_go(begun: Path) -> None:
    """Leaves a file with the number of this process, and waits for the file that lets it go on."""
    begun.with_suffix(f".{os.getpid()}").touch()
    until(begun.with_suffix(".go").exists)
