"""The saved state of a training: weights, optimizer and epochs, with a record of hashes that shows damage."""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import nn

from rerank.data.trec import write_run
from rerank.data.types import Run
from rerank.training.average import AveragedWeights
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, write_text
from rerank.utils.integrity import Record, changes, changes_since_record, facts_of, files_below, write_record
from rerank.utils.progress import log

TENSORS = "state.pt"
"""The state dictionaries of `Trained`."""
EPOCHS = "epochs.json"
"""The records of the epochs and of the best epoch's files."""

EpochRecord = dict[str, float]
"""The fields of an epoch by name: `epoch`, from 1, `loss`, `valid`, …"""


class TrainingFolder(Protocol):
    """The files that training writes; rerank.experiments.runs.layout.FoldFolder implements it."""

    @property
    def checkpoint(self) -> Path: ...
    @property
    def valid_run(self) -> Path: ...
    @property
    def tag(self) -> str: ...
    @property
    def state(self) -> Path: ...
    @property
    def log(self) -> Path: ...


class Trained(NamedTuple):
    """The objects that a training changes and a state saves; `scaler` scales gradients in fp16, else it is None."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    average: AveragedWeights
    scaler: torch.amp.GradScaler | None


def save_state(
    folder: TrainingFolder,
    trained: Trained,
    kept: Record,
    history: list[EpochRecord],
    best: tuple[Callable[[Path], object], Run] | None = None,
) -> Record:
    """Writes the state after an epoch, and the log; `kept` is the record of the best epoch's files.

    If there is a new best epoch, `best` has a function that writes its checkpoint into a new folder, and its run of the
    validation queries. Both are moved to their places just before the state. Returns the record of the best epoch's
    files.
    """
    with atomic_write(folder.state) as tmp, contextlib.ExitStack() as stack:
        if best:
            kept = _stage(folder, *best, stack)
        tmp.mkdir()
        _write_tensors([None if field is None else field.state_dict() for field in trained], tmp / TENSORS)
        (tmp / EPOCHS).write_text(json.dumps([history, kept]), encoding="utf-8")
        write_record(tmp)
    _write_log(folder, history)
    return kept


def _stage(folder: TrainingFolder, save: Callable[[Path], object], run: Run, stack: contextlib.ExitStack) -> Record:
    """Writes the files of the best epoch, which replace the earlier ones when `stack` ends; returns their record."""
    staged = stack.enter_context(atomic_write(folder.checkpoint))
    save(staged)
    kept = {folder.checkpoint / file.relative_to(staged): file for file in files_below(staged)}
    kept[folder.valid_run] = stack.enter_context(atomic_write(folder.valid_run))
    write_run(run, kept[folder.valid_run], folder.tag)
    parent = folder.state.parent
    return {place.relative_to(parent).as_posix(): facts_of(file) for place, file in kept.items()}


def _write_tensors(states: Sequence[Mapping[str, object] | None], file: Path) -> None:
    with file.open("wb") as out:
        try:
            torch.save(states, out)
        except RuntimeError as error:
            raise error.__context__ or error from None  # torch hides the OSError of a full disk


def restore_state(folder: TrainingFolder, trained: Trained, writes: bool) -> tuple[list[EpochRecord], Record]:
    """Restores `trained`, and returns the records of the epochs so far and of the best epoch's files.

    Both are empty if there is no state. With `writes` the log is written again from the records. Raises UserError for a
    state that is damaged or belongs to another model.
    """
    state = folder.state
    if not state.is_dir():
        return [], {}
    try:
        if changed := changes_since_record(state):
            raise ValueError("; ".join(changed))
        saved = torch.load(state / TENSORS, map_location="cpu", weights_only=True)
        history, kept = json.loads((state / EPOCHS).read_text(encoding="utf-8"))
        for field, values in zip(trained, saved, strict=True):
            if field is not None and values is not None:
                field.load_state_dict(values)
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{state}: cannot resume training ({error}); remove the folder to start again") from error
    if writes:
        _write_log(folder, history)
    log.info(f"resuming after epoch {len(history)}")
    return history, kept


def check_kept(folder: TrainingFolder, kept: Record) -> None:
    """Raises UserError if the best epoch's files have changed since they were written; for the end of a training.

    Earlier a mismatch is normal: a killed command may have left the checkpoint of an epoch and the state of the epoch
    before.
    """
    if changed := list(changes(folder.state.parent, kept)):
        raise UserError(
            f"{folder.state.parent}: the best epoch's files have changed since they were written "
            f"({'; '.join(changed)}); remove {folder.state} to train again"
        )


def _write_log(folder: TrainingFolder, history: list[EpochRecord]) -> None:
    write_text(folder.log, "".join(json.dumps(record) + "\n" for record in history))
