"""A training that is interrupted and resumed against one that is not."""

from pathlib import Path
from tempfile import TemporaryDirectory

from torch import Tensor

from rerank.losses import smoothi
from scripts.benchmarks.workload import on_device
from scripts.gpu_check.lists_training import (
    TRAINED_BOUNDS,
    of_change,
    open_lists,
    tiny_encoder,
    train_lists,
)
from scripts.gpu_check.rows import Row, at_most
from scripts.gpu_check.setting import cpu_scores, opened
from scripts.gpu_check.sizes import Setting

EPOCHS, KEPT = 4, 2
"""The epochs of the training, and those whose state is complete before it is interrupted."""


def check(setting: Setting) -> list[Row]:
    """A row on the scores, which are the same bits on a CPU, and one on the epochs that the second command trained."""
    with tiny_encoder() as encoder, TemporaryDirectory() as temporary:
        whole, _ = _trained(setting, encoder, Path(temporary, "whole"), EPOCHS)
        parts = Path(temporary, "parts")
        before, _ = _trained(setting, encoder, parts, KEPT)
        _interrupt(setting, encoder, parts)
        resumed, epochs = _trained(setting, encoder, parts, EPOCHS)
    bound = 0.0 if setting.kind == "cpu" else TRAINED_BOUNDS[setting.kind]
    again = Row(
        "resumed training: epochs that it trains",
        f"{len(epochs)} of {EPOCHS}",
        f"≤ {EPOCHS - KEPT}",
        0 < len(epochs) <= EPOCHS - KEPT,
    )
    difference = of_change(resumed, whole, before)
    return [again, at_most("resumed against uninterrupted: difference / change of the scores", difference, bound)]


def _trained(setting: Setting, encoder: Path, folder: Path, epochs: int) -> tuple[Tensor, list[int]]:
    """The scores on the CPU after the training, and the epochs that were trained now."""
    workload = open_lists(encoder, setting)
    with opened(setting) as accelerator:
        on_device(workload.model, accelerator)
        trained = train_lists(workload, folder, epochs, accelerator)
    return cpu_scores(workload), trained


def _interrupt(setting: Setting, encoder: Path, folder: Path) -> None:
    """Goes on with the training, and interrupts its next epoch in the second step."""
    steps = 0

    def interrupted(*grids: Tensor) -> Tensor:
        nonlocal steps
        steps += 1
        if steps > 1:
            raise KeyboardInterrupt
        return smoothi(*grids)

    workload = open_lists(encoder, setting)
    with opened(setting) as accelerator:
        on_device(workload.model, accelerator)
        try:
            train_lists(workload, folder, EPOCHS, accelerator, interrupted)
        except KeyboardInterrupt:
            return
    raise RuntimeError("the interrupt did not end the training")
