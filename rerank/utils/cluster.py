"""Runs jobs on a Ray cluster.

A separate driver process submits the jobs, because Ray ends a process that loses the connection to its head node. Ray
places the jobs, assigns GPUs, and restarts a job whose node or process is lost.
"""

import contextlib
import logging
import os
import pickle
import signal
import socket
import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

from cyclopts import Parameter

from rerank.utils.errors import UserError
from rerank.utils.parallel import SECONDS_TO_END, begin_worker, end_processes, outcome, starting_workers
from rerank.utils.parameters import Pattern
from rerank.utils.plugins import add_plugins, named_plugins

if TYPE_CHECKING:
    from ray import ObjectRef

Job = TypeVar("Job")
LOCAL = "local"
"""The value of --on for this machine."""
RAY = "ray"
"""The value of --on for the cluster of RAY_ADDRESS, or one on this machine."""
Engine = Annotated[str, Parameter(validator=Pattern(r"local|ray|ray://[^\s/]+:\d+", "local, ray or ray://HOST:10001"))]
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # under `uv run` Ray would copy the folder to the nodes
    "RAY_gcs_rpc_server_reconnect_timeout_s": "10",  # a lost head is noticed after 10 seconds instead of a minute
}
AGAIN = "; finished jobs are kept: start Ray again and repeat the command to continue"
"""The remedy that ends an error."""
CONNECTED = "connected"  # the driver's first message
RETRIES = 2  # restarts of a job whose node or process was lost
SECONDS_TO_CONNECT = 150.0


def expect_engine(engine: str) -> None:
    """Raises UserError if Ray is needed and not installed."""
    if engine != LOCAL and find_spec("ray") is None:
        raise UserError(f"--on {engine}: Ray is not installed; pip install 'ir-rerank[cluster]'")


def work_on_ray(
    engine: str, function: Callable[[Job], None], jobs: Sequence[Job], workers: int | None = None, gpus: bool = True
) -> Generator[tuple[Job, str], None, None]:
    """Yields each finished job with its error, or "" for success, as `rerank.utils.parallel.work` does.

    `function` is called in Ray's processes on the nodes of the cluster, in this process' working directory, which all
    nodes must share. A job whose node or process is lost is restarted up to RETRIES times. At most `workers` jobs run
    at the same time, by default as many as the cluster can run. With `gpus`, each job takes a GPU if the cluster has
    any. Raises UserError if the cluster cannot be reached, its head is lost, or no node can run a job.
    """
    expect_engine(engine)
    where = f"the Ray cluster at {engine if engine != RAY else os.environ.get('RAY_ADDRESS') or 'this machine'}"
    task = Work(engine, pickle.dumps(function), Path.cwd(), workers, gpus, named_plugins())
    context = get_context("spawn")
    messages, sent = context.Pipe(duplex=False)
    driver = context.Process(target=drive, args=(sent, task, [pickle.dumps(job) for job in jobs]), daemon=True)
    with starting_workers():
        driver.start()
    sent.close()  # otherwise reading from a dead driver would never end
    try:
        if not messages.poll(SECONDS_TO_CONNECT):
            raise UserError(f"--on {engine}: {where} has not answered in {SECONDS_TO_CONNECT:.0f} s{AGAIN}")
        for _ in range(1 + len(jobs)):
            message = messages.recv()
            if isinstance(message, Exception):
                raise message
            if message != CONNECTED:
                number, error = message
                yield jobs[number], error
        driver.join(SECONDS_TO_END)  # an interrupt during Ray's shutdown would stop the shutdown
    except (EOFError, ConnectionResetError):
        raise UserError(f"--on {engine}: the connection to {where} is lost{AGAIN}") from None
    finally:
        end_processes([driver], SECONDS_TO_END + 10)  # the driver waits for the jobs on the nodes


class Work(NamedTuple):
    """The input of the driver and the jobs: arguments of `work_on_ray`, the working directory and the plug-ins."""

    engine: str
    function: bytes
    cwd: Path
    workers: int | None
    gpus: bool
    plugins: list[str]


def drive(pipe: "Connection[object, object]", work: Work, jobs: Sequence[bytes]) -> None:
    """The driver's main function: sends CONNECTED, then the number and error of each job, or its own error."""
    begin_worker(ENVIRONMENT)
    with open(os.devnull, "w") as silence:  # noqa: PTH123 - Ray's C++ writes to the descriptors
        for descriptor in (1, 2):
            os.dup2(silence.fileno(), descriptor)
    from ray.exceptions import RayError

    try:
        _connect(work.engine)
        pipe.send(CONNECTED)
        with contextlib.closing(_run_all(work, jobs)) as ended:
            for number, failure in ended:
                pipe.send((number, failure))
    except UserError as error:
        pipe.send(error)
    except (RayError, ConnectionError) as error:
        pipe.send(UserError(f"--on {work.engine}: the connection to the Ray cluster is lost: {_line(error)}{AGAIN}"))
    except Exception:
        pipe.send(RuntimeError(traceback.format_exc()))


def _connect(engine: str) -> None:
    import ray

    address = engine if engine != RAY else os.environ.get("RAY_ADDRESS") or "auto"
    remedy = "start one with `ray start --head`, or name its head: --on ray://HOST:10001, or RAY_ADDRESS=HOST:6379"
    if address not in ("auto", "local") and (reason := _silence(address, 10.0)):
        raise UserError(f"--on {engine}: no Ray cluster answers at {address}: {reason}; {remedy}")
    init = partial(ray.init, address, log_to_driver=False, logging_level=logging.ERROR, namespace="rerank")
    try:
        try:
            init()
        except ConnectionAbortedError:  # the process that the head starts for a client sometimes ends at once
            init()
    except (ConnectionError, ValueError, RuntimeError, ImportError, ray.exceptions.RayError) as error:
        line = _line(error).rstrip(".")
        raise UserError(f"--on {engine}: no Ray cluster can be reached: {line}; {remedy}") from error
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Ray has set its own handler


def _silence(address: str, seconds: float) -> str:
    """The reason why nothing answers at ray://HOST:PORT or HOST:PORT; "" if something answers."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), seconds).close()
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def _run_all(work: Work, jobs: Sequence[bytes]) -> Generator[tuple[int, str]]:
    """Yields the number and the error of each finished job; an interrupt is passed on to the jobs."""
    import ray

    task = ray.remote(run_job).options(max_retries=RETRIES, **_share(work))
    waiting, running = deque(range(len(jobs))), dict["ObjectRef[str]", int]()
    try:
        while waiting or running:
            while waiting and len(running) < (work.workers or len(jobs)):
                number = waiting.popleft()
                running[task.remote(work, jobs[number])] = number
            (done, *_), _ = ray.wait(list(running))
            number = running.pop(done)
            yield number, _result(work, done)
    finally:
        for awaited in running:
            ray.cancel(awaited)
        if running:
            ray.wait(list(running), num_returns=len(running), timeout=SECONDS_TO_END)
        ray.shutdown()


def _share(work: Work) -> dict[str, float]:
    """The resources of a job: a GPU and its share of the node's CPUs, or one CPU, or more CPUs for few workers."""
    import ray

    nodes: list[dict[str, float]] = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if work.gpus and (found := [node for node in nodes if node.get("GPU", 0) >= 1]):
        cpus = min(node.get("CPU", 0) / node["GPU"] for node in found)
        return {"num_gpus": 1, "num_cpus": int(cpus) or cpus}
    counts = [node["CPU"] for node in nodes if node.get("CPU", 0) >= 1]
    if not counts:
        raise UserError(f"--on {work.engine}: no node of the cluster has a CPU for jobs; expected one or more")
    return {"num_cpus": max(1, min(int(sum(counts)) // work.workers, int(min(counts)))) if work.workers else 1}


def _result(work: Work, ended: "ObjectRef[str]") -> str:
    """The error of a job that has ended; raises UserError for a node that cannot run jobs of this command."""
    import ray

    try:
        return str(ray.get(ended))
    except ray.exceptions.RayTaskError as failure:  # `run_job` itself raises nothing, so its import failed
        line = str(failure).strip().splitlines()[-1]
        raise UserError(f"--on {work.engine}: a node cannot run rerank: {line}; install it on all nodes") from failure
    except ray.exceptions.RayError as failure:
        return f"its node or its process (killed, as for memory) was lost {RETRIES + 1} times: {_line(failure)}"


def run_job(work: Work, job: bytes) -> str:
    """Runs a job on a node; returns its error."""

    def call(job: bytes) -> None:
        if not work.cwd.is_dir():
            raise UserError(
                f"node {socket.gethostname()} has no folder {work.cwd}; all nodes need it, on a shared disk"
            )
        os.chdir(work.cwd)
        add_plugins(work.plugins)
        pickle.loads(work.function)(pickle.loads(job))

    return outcome(call, job)


def _line(error: BaseException) -> str:
    """The first line of an error's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
