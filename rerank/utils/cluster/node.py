"""What runs on a node of a Ray cluster: an actor, which runs jobs one after the other in a process of its own."""

import os
import sys
import time
from functools import partial

from rerank.utils.cluster.jobs import Work
from rerank.utils.workers import Worker, call_pickled, end, give, result, serve, start

SECONDS_TO_SEE = 3.0
"""How long a network file system may take to show a new file on another machine."""


class Node:
    """The actor. It imports neither torch nor the jobs, so a job that crashes leaves it alone.

    It runs `run` and `stop` in two threads.
    """

    def __init__(self, work: Work) -> None:
        self.work = work
        self.worker: Worker | None = None
        sys.modules["__main__"].__file__ = None  # else multiprocessing would import Ray's main module in the worker

    def enter(self) -> bool:
        """Enters the folder of the command; False if this node does not see it."""
        if not sees(self.work):
            return False
        os.chdir(self.work.cwd)
        return True

    def run(self, job: bytes) -> str:
        """Runs a job and returns its error, "" if there was none."""
        if self.worker is None or not self.worker.process.is_alive():
            self.worker = start(serve, partial(call_pickled, self.work.function))
        give(self.worker, job)
        return result(self.worker)

    def stop(self) -> None:
        """Interrupts the job and waits until it has cleaned up."""
        if self.worker:
            end([self.worker])


def sees(work: Work) -> bool:
    """Whether this node sees the working directory and the file that the command has just written."""
    deadline = time.monotonic() + SECONDS_TO_SEE
    while not (seen := work.cwd.is_dir() and work.probe.is_file()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return seen
