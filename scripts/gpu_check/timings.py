"""Timings that end in time: as much work as fits into some seconds, the contestants in turns."""

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import NamedTuple

import torch

from scripts.benchmarks.timing import interleaved, ratio, synchronise

Work = Callable[[int], object]
"""Does so many units of work, such as lists."""


class Rate(NamedTuple):
    """Units of work, and the seconds that they took in each round."""

    units: int
    seconds: list[float]

    @property
    def per_second(self) -> float:
        """Units per second, in the median round."""
        return self.units / median(self.seconds)

    def faster_than(self, other: "Rate") -> float:
        """How many times faster this one is: the median over the rounds of the ratio within a round."""
        own, others = ([seconds / rate.units for seconds in rate.seconds] for rate in (self, other))
        return ratio(others, own)


def timed(
    contestants: dict[str, Work], least: int, most: int, seconds: float, rounds: int, device: torch.device
) -> dict[str, Rate]:
    """The rate of each contestant, on `least` to `most` units a round, as many as take about so many seconds."""
    units = {name: _units(work, least, most, seconds, device) for name, work in contestants.items()}
    works = {name: partial(work, units[name]) for name, work in contestants.items()}
    took = interleaved(works, rounds, device)
    return {name: Rate(units[name], took[name]) for name in contestants}


def _units(work: Work, least: int, most: int, seconds: float, device: torch.device) -> int:
    """A multiple of `least`, after a first call that loads kernels and makes the optimizer's state."""
    work(least)
    if not seconds:
        return least
    synchronise(device)
    begun = time.perf_counter()
    work(least)
    synchronise(device)
    took = time.perf_counter() - begun
    return max(least, min(most, least * int(seconds / max(took, 1e-6))))
