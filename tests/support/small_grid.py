"""A grid of two losses on the small collection, and jobs for workers."""

import os
import signal
import time
from pathlib import Path

from rerank.utils.errors import UserError

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


def job(word: str) -> None:
    """What the workers are given: each word is one way to end."""
    if word == "wrong":
        raise UserError("a mistake")
    if word == "broken":
        raise ZeroDivisionError("a fault")
    if word == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if word.startswith("wait "):
        begun = Path(word.removeprefix("wait "))
        begun.with_suffix(f".{os.getpid()}").touch()
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            begun.with_suffix(f".{os.getpid()}").write_text("interrupted")
            raise
