"""An exponential moving average of a model's weights over the steps of a training."""

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class AveragedWeights:
    """The average of the trained weights and of batch norm's running statistics; empty if `decay` is 0.

    After the n-th step the decay is min(decay, n / (n + 9)), so a short training also forgets its first steps. Adam
    continues from the model's own weights.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._own = _averaged(model) if decay else {}
        self._values = copy_of(self._own)

    def update(self, steps: int) -> None:
        """Updates the average with the weights after a step; `steps` counts the steps so far, including this one."""
        if self._own:
            average = get_ema_multi_avg_fn(min(self.decay, steps / (steps + 9)))
            average(list(self._values.values()), list(self._own.values()), steps)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Gives the model the average within the block, and then restores its own weights, bit for bit."""
        with holding(self._own, self._values):
            yield

    def state_dict(self) -> dict[str, Tensor]:
        """Name of a weight -> its average, not copied."""
        return self._values

    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """Restores a saved average; raises ValueError if the saved state has none or one of another model."""
        if saved.keys() != self._values.keys():
            raise ValueError(f"it has {len(saved)} averaged weights, expected {len(self._values)}")
        _copy(saved, self._values)


def _averaged(model: nn.Module) -> dict[str, Tensor]:
    """The distinct trained parameters and floating-point buffers, by name."""
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    saved = model.state_dict().keys()
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in saved and buffer.is_floating_point()}
    return {**trained, **buffers}


def copy_of(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the same device, without a graph."""
    return {name: value.detach().clone() for name, value in values.items()}


@contextlib.contextmanager
def holding(own: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> Iterator[None]:
    """Gives the tensors `own` the values of `others` within the block, and then restores theirs, bit for bit."""
    before = copy_of(own)
    try:
        _copy(others, own)
        yield
    finally:
        _copy(before, own)


@torch.no_grad()
def _copy(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    for name, value in target.items():
        value.copy_(source[name])
