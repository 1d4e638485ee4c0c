"""Processes and threads beside a test: forked, so that they begin at once; two of one run, as torchrun starts them."""

import contextlib
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tests.support.patience import SECONDS


def fork(log: Path, function: Callable[..., Any], *arguments: Any) -> int:
    """Starts `function(*arguments)` and gives the number of its process; what it prints goes to `log`."""
    child = os.fork()
    if child:
        return child
    code: Any = 1
    try:
        # tqdm's lock is shared with the test's process, which would wait forever if this one is killed while it prints.
        tqdm.set_lock(threading.RLock())
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(round(SECONDS))
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        sys.stdout, sys.stderr = (os.fdopen(descriptor, "w", buffering=1, closefd=False) for descriptor in (1, 2))
        function(*arguments)
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(child: int) -> int:
    """Waits for a process, and gives its exit code, negative for a signal."""
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


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
    from accelerate.state import AcceleratorState, GradientState, PartialState

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


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def beside(function: Callable[[], object]) -> Iterator[None]:
    """Runs the function in a thread during the block, waits for it at the end, and raises its exception there."""
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(function)
        yield
        ended.result()
