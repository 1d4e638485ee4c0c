"""The random numbers of a training step: they follow from a seed, and can be drawn a second time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class RandomState:
    """The state, when this is made, of torch's random generators on the CPU and on a device.

    Gradient caching restores it before the second pass of a micro-batch, so that dropout drops the same values, as
    RandContext does in GradCache (Gao et al. 2021).
    """

    def __init__(self, device: torch.device) -> None:
        self._generators = [torch, *_of_device(device)]
        self._states = [generator.get_rng_state() for generator in self._generators]

    def restore(self) -> None:
        """Makes torch draw again what it drew after the state was taken."""
        for generator, state in zip(self._generators, self._states, strict=True):
            generator.set_rng_state(state)


def _of_device(device: torch.device) -> list[Any]:
    """The module of torch that has a device's generator, such as torch.cuda; none for a CPU."""
    module = getattr(torch, device.type, None)
    return [module] if hasattr(module, "get_rng_state") else []


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Within the block torch's random numbers follow from `seed`; after it they go on as if it had not been."""
    before = RandomState(device)
    try:
        for generator in [torch.default_generator, *_of_device(device)]:
            generator.manual_seed(seed)
        yield
    finally:
        before.restore()
