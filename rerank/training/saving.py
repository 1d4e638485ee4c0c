"""When the state of a training is saved: at once on a CPU; by time, from a copy and by a thread on another device."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from rerank.training.state import StagedBest, Trained, TrainingFolder, save_state, state_tensors
from rerank.utils.integrity import Record

SECONDS_BETWEEN_STATES = 180.0


def saves_in_background(device: torch.device) -> bool:
    """Whether states are saved while the next epoch trains: on a CPU, a copy and a thread would take from training."""
    return device.type != "cpu"


class StateSaver:
    """Saves the state after the epochs of a training; a context manager, which saves the last epoch at its end.

    On a CPU the state of every epoch is written at once. In the background, the state of every epoch is copied to the
    CPU's memory, always the same; a thread writes the copy if the epoch is the best, so that the checkpoint of the best
    epoch and the state change together, or if SECONDS_BETWEEN_STATES have passed. What is not written when the training
    ends, by itself, by an error or by an interrupt, is written then. An epoch that ends while the one before it is
    being written waits for it.

    `kept` is the record of the best epoch's files.
    """

    def __init__(self, folder: TrainingFolder, trained: Trained, kept: Record, in_background: bool) -> None:
        self.folder, self.trained, self.kept = folder, trained, kept
        self._thread = ThreadPoolExecutor(max_workers=1) if in_background else None
        self._written: Future[None] | None = None
        self._copy: dict[str, Tensor] = {}
        self._history: list[dict[str, Any]] | None = None  # of the copy, if it is not written yet
        self._started = time.monotonic()

    def save(self, history: list[dict[str, Any]], stage_best: Callable[[], StagedBest] | None) -> None:
        """Saves the state after an epoch; `stage_best` writes the files of the best epoch, if this is it."""
        if self._thread is None:
            self._save(state_tensors(self.trained), history, stage_best() if stage_best else None)
            return
        due = stage_best is not None or time.monotonic() - self._started >= SECONDS_BETWEEN_STATES
        self._wait()
        best = stage_best() if stage_best else None
        try:
            self._history = None  # until the copy is complete
            _copy_into(self._copy, state_tensors(self.trained))
            if due:
                self._written = self._thread.submit(self._save, self._copy, list(history), best)
                self._started = time.monotonic()
            else:
                self._history = list(history)
        except BaseException as error:
            if best:
                best.drop(error)
            raise

    def __enter__(self) -> "StateSaver":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is None:
            return
        try:
            self._wait()
            if self._history is not None:
                self._save(self._copy, self._history, None)
        finally:
            self._thread.shutdown()

    def _save(self, tensors: dict[str, Tensor], history: list[dict[str, Any]], best: StagedBest | None) -> None:
        kept = best.record if best else self.kept
        save_state(self.folder, tensors, kept, history, best)
        self.kept = kept

    def _wait(self) -> None:
        """Waits for the thread; raises the error of what it wrote."""
        if self._written is not None:
            written, self._written = self._written, None
            written.result()


def _copy_into(copy: dict[str, Tensor], tensors: dict[str, Tensor]) -> None:
    """Copies tensors to the CPU, into the memory of an earlier copy if there is one."""
    for name, value in tensors.items():
        if name not in copy:
            copy[name] = torch.empty_like(value, device="cpu", memory_format=torch.contiguous_format)
        copy[name].copy_(value)
