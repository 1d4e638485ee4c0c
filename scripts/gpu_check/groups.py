"""The groups of checks, and how they are run: on a GPU each in a process of its own, which has only so much time."""

import importlib
import multiprocessing
import time
import traceback
from multiprocessing.connection import Connection

from rerank.utils.progress import log, log_to_terminal
from scripts.gpu_check.rows import Row, at_most
from scripts.gpu_check.setting import Setting

GROUPS = {
    "scores": 100,
    "gradients": 110,
    "memory": 45,
    "training": 150,
    "speed": 150,
}
"""The modules of this package that have a `check`, in their order, and the seconds that each may take on a GPU."""

SECONDS = 480
"""The time of all groups together on a GPU."""


def run_groups(setting: Setting) -> list[Row]:
    """The rows of all groups; a group that ends with an error is a row that fails.

    A GPU's processes are separate because an error in a kernel ends the use of the GPU in its process, and because a
    kernel that never ends can only be killed.
    """
    begun = time.monotonic()
    rows = []
    for name, seconds in GROUPS.items():
        log.info(f"gpu-check: {name}")
        left = SECONDS - (time.monotonic() - begun)
        rows += run_group(name, setting) if setting.kind == "cpu" else run_apart(name, setting, min(seconds, left))
    took = time.monotonic() - begun
    return [*rows, at_most("time of all checks", took, None if setting.kind == "cpu" else SECONDS, ".0f", " s")]


def run_group(name: str, setting: Setting) -> list[Row]:
    """The rows of a group, in this process."""
    try:
        rows: list[Row] = importlib.import_module(f"scripts.gpu_check.{name}").check(setting)
    except Exception as error:  # the next group may still work
        line = (str(error).strip().splitlines() or [""])[0]
        return [Row(name, f"{type(error).__name__}: {line}", "no error", False, traceback.format_exc())]
    return rows


def run_apart(name: str, setting: Setting, seconds: float) -> list[Row]:
    """The rows of a group, in a process of its own that is killed after so many seconds."""
    if seconds <= 0:
        return [Row(name, "not run: the time of all checks is over", "", False)]
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_rows, args=(sender, name, setting))
    process.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            return [Row(name, "not ended", f"≤ {seconds:.0f} s", False)]
        rows: list[Row] = receiver.recv()
    except EOFError:
        process.join()
        return [Row(name, f"its process ended with exit code {process.exitcode}", "no error", False)]
    else:
        return rows
    finally:
        process.kill()
        process.join()


def _send_rows(sender: Connection, name: str, setting: Setting) -> None:
    log_to_terminal()
    sender.send(run_group(name, setting))
