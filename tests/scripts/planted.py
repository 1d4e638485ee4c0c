"""Functions that tests run in other processes; a module that imports little, as every such process imports it."""

import sys
import time
from pathlib import Path


def fail(words: list[str]) -> None:
    """A command with a fault."""
    raise OSError(f"planted {words[0]}")


def greet(words: list[str]) -> None:
    print(*words, Path.cwd().name)
    print("aside", file=sys.stderr)
    sys.exit(len(words))


def wait(words: list[str]) -> None:
    time.sleep(60)


def write(words: list[str]) -> None:
    Path("file").write_bytes(b"x" * 1000)


def two_peaks():
    """The memory of 64 MB of numbers, and then that of 1 MB."""
    import torch

    from scripts.benchmarks.memory import peak_memory

    return [peak_memory(lambda size=size: torch.ones(size * 250_000).sum(), torch.device("cpu")) for size in (64, 1)]
