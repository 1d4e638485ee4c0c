"""Several processes of one run: their group, what the main process does alone, and the folder that all must see."""

import contextlib
import platform
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import InitProcessGroupKwargs, broadcast_object_list, gather_object

from rerank.utils.errors import UserError
from rerank.utils.locks import locked
from rerank.utils.progress import log

LONGEST_WAIT = timedelta(days=1)
"""How long a process waits for the others: the main process alone downloads, indexes, retrieves and tokenises."""
SECONDS_BETWEEN_LINES = 60.0


def group_settings() -> InitProcessGroupKwargs:
    """How accelerate makes the group of the processes."""
    return InitProcessGroupKwargs(timeout=LONGEST_WAIT)


def expect_one_process(accelerator: Accelerator, what: str, instead: str = "") -> None:
    """Raises UserError, which begins with `what`, if this run has several processes; `instead` ends the line."""
    if accelerator.num_processes > 1:
        raise UserError(f"{what} starts its own processes: run it without accelerate or torchrun{instead}")


@contextlib.contextmanager
def main_process_first(accelerator: Accelerator, what: str) -> Iterator[None]:
    """The main process runs the block first, the others when it is done; lines say that they wait for `what`."""
    if accelerator.is_main_process:
        with _waited_for(accelerator, what):
            yield
        accelerator.wait_for_everyone()
    else:
        accelerator.wait_for_everyone()
        yield


@contextlib.contextmanager
def exclusive(accelerator: Accelerator, folder: Path, what: str) -> Iterator[None]:
    """The lock `what` on `folder` (see `locked`), held by all processes of this run together."""
    with contextlib.ExitStack() as stack:
        if accelerator.is_main_process:
            with _waited_for(accelerator, f"lock of the {what} in {folder}"):
                stack.enter_context(locked(folder, what))
        accelerator.wait_for_everyone()
        yield


@contextlib.contextmanager
def _waited_for(accelerator: Accelerator, what: str) -> Iterator[None]:
    """Logs, once a minute, that the other processes wait while this one runs the block."""
    others = accelerator.num_processes - 1
    if not others:
        yield
        return
    start, done = time.monotonic(), threading.Event()

    def tell() -> None:
        while not done.wait(SECONDS_BETWEEN_LINES):
            waiting = "the other process waits" if others == 1 else f"the other {others} processes wait"
            log.info(f"{what}: {time.monotonic() - start:.0f} s so far; {waiting}")

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def expect_shared_folder(accelerator: Accelerator, folder: Path) -> None:
    """Raises UserError, in every process, if one does not see a file that the main process writes in `folder`.

    All processes open what the main process makes: the first stage, the tokens, the state and the checkpoints.
    """
    if accelerator.num_processes == 1:
        return
    with contextlib.ExitStack() as stack:
        names: list[str | None] = [None]
        if accelerator.is_main_process:
            with contextlib.suppress(OSError):  # what cannot be written is reported by what writes there
                folder.mkdir(parents=True, exist_ok=True)
                names[0] = stack.enter_context(tempfile.NamedTemporaryFile(dir=folder, prefix=".shared-")).name
        (name,) = broadcast_object_list(names)
        unseen = name is not None and not (folder / Path(name).name).is_file()
        blind = gather_object([f"process {accelerator.process_index} on {platform.node()}"] if unseen else [])
    if blind:
        raise UserError(
            f"{folder}: {', '.join(blind)} does not see what the main process writes there; several machines need one "
            "folder on a disk that they share: name it with --output.folder"
        )


def end_processes() -> None:
    """Ends the group of processes when all have come here; does nothing where there is one process."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        state = PartialState()
        state.wait_for_everyone()
        state.destroy_process_group()
