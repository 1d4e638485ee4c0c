"""Several processes of one run: their group, and what the main process does alone."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch
from accelerate import Accelerator, PartialState

from rerank.utils.errors import UserError
from rerank.utils.locks import locked


def expect_one_process(accelerator: Accelerator, what: str, instead: str = "") -> None:
    """Raises UserError, which begins with `what`, if this run has several processes; `instead` ends the line."""
    if accelerator.num_processes > 1:
        raise UserError(f"{what} starts its own processes: run it without accelerate or torchrun{instead}")


@contextlib.contextmanager
def exclusive(accelerator: Accelerator, folder: Path, what: str) -> Iterator[None]:
    """The lock `what` on `folder` (see `locked`), held by all processes of this run together."""
    with contextlib.ExitStack() as stack:
        if accelerator.is_main_process:
            stack.enter_context(locked(folder, what))
        accelerator.wait_for_everyone()
        yield


def end_processes() -> None:
    """Ends the group of processes when all have come here; does nothing where there is one process."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        state = PartialState()
        state.wait_for_everyone()
        state.destroy_process_group()
