"""Experiment tracking: sends the record of every epoch to TensorBoard, Weights & Biases, MLflow, or your own tracker.

`--training.track NAME` takes a tracker of accelerate, if its package is installed, or a tracker registered here.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from accelerate import Accelerator
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker, filter_trackers

from rerank.config import Config, sections
from rerank.utils.errors import UserError, nearest
from rerank.utils.registry import Registry

MakeTracker = Callable[[str, Path], GeneralTracker]
"""Makes a tracker from the name of a run, such as "smoothi/fold1", and a folder for its files (not made yet)."""

TRACKERS: Registry[MakeTracker] = Registry("tracker")
"""The registered trackers by name, without accelerate's own trackers."""


def tracker(name: str) -> Callable[[MakeTracker], MakeTracker]:
    """Registers a function that makes an accelerate GeneralTracker as the tracker `name` of `--training.track`.

    >>> @tracker("lines")
    ... def lines_tracker(run: str, folder: Path) -> GeneralTracker:
    ...     return MyTracker(folder / f"{run}.txt")
    >>> "lines" in TRACKERS
    True
    >>> del TRACKERS["lines"]  # the example leaves the registry as it was
    """

    def register(make: MakeTracker) -> MakeTracker:
        return TRACKERS.register(name, make)

    return register


def check_tracker(name: str) -> None:
    """Raises UserError for an unknown tracker, and for one whose package is not installed; "" means no tracker."""
    if not name or name in TRACKERS:
        return
    names = {str(known) for known in LOGGER_TYPE_TO_CLASS}
    if name not in names:
        raise UserError(f"--training.track {name}: no such tracker; {nearest(name, names | set(TRACKERS))}")
    if not filter_trackers([name], logging_dir="."):
        raise UserError(f"--training.track {name}: its package is not installed; pip install {name}")


@contextlib.contextmanager
def tracked(accelerator: Accelerator, config: Config, project: str, run: str, folder: Path) -> Iterator[None]:
    """Lets the accelerator log the records of a training to the tracker of `config.training.track` within the block.

    `project` groups the trackers' runs of a collection; files go to `folder`. Without a tracker it does nothing.
    """
    name = config.training.track
    if not name:
        yield
        return
    accelerator.project_configuration.logging_dir = str(folder)
    accelerator.log_with = [TRACKERS[name](run, folder)] if name in TRACKERS else filter_trackers([name], str(folder))
    settings = {
        f"{section}.{key}": value if isinstance(value, bool | int | float) else str(value)
        for section, values in sections(config).items()
        for key, value in values.items()
        if value is not None
    }
    accelerator.init_trackers(project, settings, {"wandb": {"name": run}, "mlflow": {"run_name": run}})
    try:
        yield
    finally:  # accelerate's end_training would also end the processes, which the next folds need
        for opened in accelerator.trackers:
            opened.finish()
        accelerator.trackers = []
