"""Two processes of one run on this machine, joined by gloo, as torchrun starts them but forked from the test."""

import os
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accelerate.state import AcceleratorState, GradientState, PartialState

from tests.support.forks import ended, fork
from tests.support.ports import free_port


def in_two_processes(folder: Path, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The results of `function(*arguments)` in each of two processes; `folder` gets what they print, in log0 and log1.

    A process that raises gives the exception.
    """
    port = free_port()
    children = [fork(folder / f"log{rank}", _run, folder, rank, port, function, arguments) for rank in range(2)]
    for child in children:
        ended(child)
    return [pickle.loads((folder / f"result{rank}").read_bytes()) for rank in range(2)]


def _run(folder: Path, rank: int, port: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    for state in (AcceleratorState, PartialState, GradientState):  # the test's own process has one of one process
        state._reset_state()
    try:
        result = function(*arguments)
    except BaseException as error:
        traceback.print_exc()
        result = error
    (folder / f"result{rank}").write_bytes(pickle.dumps(result))
