"""Where jobs run: on this machine, or on a Ray cluster, whose driver is a process of its own."""

import os
import pickle
from collections.abc import Callable, Generator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

from cyclopts import Parameter

from rerank.utils.errors import UserError
from rerank.utils.parameters import Pattern
from rerank.utils.progress import log
from rerank.utils.temporary import temporary_place
from rerank.utils.workers import SECONDS_TO_END, Pipe, end, start

Job = TypeVar("Job")
LOCAL = "local"
RAY = "ray"
Engine = Annotated[str, Parameter(validator=Pattern(r"local|ray|ray://[^\s/]+:\d+", "local, ray or ray://HOST:10001"))]
SECONDS_TO_CONNECT = 150.0
AGAIN = "; what is finished is kept: start Ray again, and the same command goes on"


class Work(NamedTuple):
    """What the driver is told: the cluster, the pickled function, and where and on how much of a node it runs.

    engine: `ray` or `ray://HOST:PORT`. cwd: the folder that the jobs run in. probe: a file that every node must see.
    workers: how many work at the same time; None for as many as there is room for. gpus: whether a worker takes a GPU
    where the cluster has some.
    """

    engine: str
    function: bytes
    cwd: Path
    probe: Path
    workers: int | None
    gpus: bool


def expect_engine(engine: str) -> None:
    """Raises UserError if Ray is needed and not installed."""
    if engine != LOCAL and find_spec("ray") is None:
        raise UserError(f"--on {engine}: Ray is not installed; pip install 'ir-rerank[cluster]'")


def work_on_ray(
    engine: str,
    function: Callable[[Job], None],
    jobs: Sequence[Job],
    folder: Path,
    workers: int | None = None,
    gpus: bool = True,
) -> Generator[tuple[Job, str], None, None]:
    """Yields each job when it has ended, with its error, "" if it had none, as `rerank.utils.workers.work` does.

    `function` is called in processes on the nodes of the cluster, in this process' working directory; a job whose node
    is lost goes to another. `folder`, which is made, must be on a disk that all nodes share. Raises UserError if the
    cluster cannot be reached or its head is lost, if a node does not see `folder`, and if no node can run a job.
    """
    expect_engine(engine)
    folder.mkdir(parents=True, exist_ok=True)
    with temporary_place(folder.absolute() / "shared") as place:
        place.new.touch()
        task = Work(engine, pickle.dumps(function), Path.cwd(), place.new, workers, gpus)
        from rerank.utils.cluster.driver import drive

        driver = start(drive, task, [pickle.dumps(job) for job in jobs], environment={"RAY_USAGE_STATS_ENABLED": "0"})
        try:
            for number, error in _ended(driver.pipe, engine, len(jobs)):
                yield jobs[number], error
        finally:
            end([driver], SECONDS_TO_END + 10)  # it waits for the workers on the nodes


def _ended(pipe: Pipe, engine: str, total: int) -> Generator[tuple[int, str], None, None]:
    """The number and the error of each job, as the driver reports them."""
    if not pipe.poll(SECONDS_TO_CONNECT):
        raise UserError(f"--on {engine}: {_address(engine)} has not answered in {SECONDS_TO_CONNECT:.0f} s{AGAIN}")
    ended = 0
    while ended < total:
        try:
            message: tuple[str, int, str] = pipe.recv()  # type: ignore[assignment]
        except (EOFError, OSError):
            raise UserError(f"--on {engine}: the connection to {_address(engine)} is lost{AGAIN}") from None
        kind, number, text = message
        if kind == "ended":
            ended += 1
            yield number, text
        elif kind == "log":
            log.info(text)
        elif kind == "refused":
            raise UserError(text)
        elif kind == "broken":
            raise RuntimeError(text)


def _address(engine: str) -> str:
    """The cluster as a message names it."""
    return f"the Ray cluster at {engine if engine != RAY else os.environ.get('RAY_ADDRESS') or 'this machine'}"
