"""Where jobs run: on this machine, or on a Ray cluster, whose driver is a process of its own."""

import os
import pickle
from collections.abc import Callable, Generator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter

from rerank.utils.cluster.driver import AGAIN, CONNECTED, ENVIRONMENT, RAY, Work, drive
from rerank.utils.errors import UserError
from rerank.utils.parameters import Pattern
from rerank.utils.plugins import named_plugins
from rerank.utils.temporary import temporary_place
from rerank.utils.workers import SECONDS_TO_END, end, start

Job = TypeVar("Job")
LOCAL = "local"
Engine = Annotated[str, Parameter(validator=Pattern(r"local|ray|ray://[^\s/]+:\d+", "local, ray or ray://HOST:10001"))]
SECONDS_TO_CONNECT = 150.0


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

    `function` is called in processes of Ray on the nodes of the cluster, in this process' working directory; a job
    whose node or process is lost starts again, as often as Ray tries. At most `workers` work at the same time, by
    default as many as the cluster can run. With `gpus`, each takes a GPU where the cluster has some. `folder`, which is
    made, must be on a disk that all nodes share. Raises UserError if the cluster cannot be reached or its head is lost,
    if a node does not see `folder`, and if no node can run a job.
    """
    expect_engine(engine)
    folder.mkdir(parents=True, exist_ok=True)
    where = f"the Ray cluster at {engine if engine != RAY else os.environ.get('RAY_ADDRESS') or 'this machine'}"
    with temporary_place(folder.absolute() / "shared") as place:
        place.new.touch()
        task = Work(engine, pickle.dumps(function), Path.cwd(), place.new, workers, gpus, named_plugins())
        driver = start(drive, task, [pickle.dumps(job) for job in jobs], environment=ENVIRONMENT)
        try:
            if not driver.pipe.poll(SECONDS_TO_CONNECT):
                raise UserError(f"--on {engine}: {where} has not answered in {SECONDS_TO_CONNECT:.0f} s{AGAIN}")
            for _ in range(1 + len(jobs)):
                message: Any = driver.pipe.recv()
                if isinstance(message, Exception):
                    raise message
                if message != CONNECTED:
                    number, error = message
                    yield jobs[number], error
            driver.process.join(SECONDS_TO_END)  # an interrupt while Ray shuts down would keep it from ending
        except (EOFError, ConnectionResetError):
            raise UserError(f"--on {engine}: the connection to {where} is lost{AGAIN}") from None
        finally:
            end([driver], SECONDS_TO_END + 10)  # it waits for the jobs on the nodes
