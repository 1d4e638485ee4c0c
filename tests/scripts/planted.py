"""Functions that tests run in other processes; a module that imports little, as every such process imports it."""

import torch

from scripts.benchmarks.memory import peak_memory


def two_peaks():
    """The memory of 64 MB of numbers, and then that of 1 MB."""
    return [peak_memory(lambda size=size: torch.ones(size * 250_000).sum(), torch.device("cpu")) for size in (64, 1)]
