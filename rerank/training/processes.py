"""Several processes of one run: their group, what the main process does alone, and the folder that all must see."""

import contextlib
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import broadcast_object_list, gather_object

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
