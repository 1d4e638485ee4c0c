"""The random numbers of a training step: they are determined by a seed, and can be drawn a second time."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import torch


class RandomState:
    """A snapshot of torch's random generators on the CPU and on a device.

    Gradient caching restores it before the second pass of a micro-batch, so dropout drops the same values, like
    RandContext in GradCache (Gao et al. 2021).
    """

    def __init__(self, device: torch.device) -> None:
        self._generators = [torch, *_device_generators(device)]
        self._states = [generator.get_rng_state() for generator in self._generators]

    def restore(self) -> None:
        """Restores the state of the snapshot, so torch draws the same numbers again."""
        for generator, state in zip(self._generators, self._states, strict=True):
            generator.set_rng_state(state)


def _device_generators(device: torch.device) -> list[ModuleType]:
    """The torch module with a device's generator, such as torch.cuda; none for a CPU."""
    module = getattr(torch, device.type, None)
    return [module] if isinstance(module, ModuleType) and hasattr(module, "get_rng_state") else []


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seeds torch's generators within the block, and then restores their state."""
    before = RandomState(device)
    try:
        torch.default_generator.manual_seed(seed)
        for generator in _device_generators(device):
            generator.manual_seed(seed)
        yield
    finally:
        before.restore()
