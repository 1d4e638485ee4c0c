"""The driver of a Ray cluster's jobs: a process that connects to the cluster, hires actors and hands out the jobs."""

import contextlib
import logging
import os
import signal
import socket
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any

from rerank.utils.cluster.jobs import AGAIN, RAY, Work
from rerank.utils.cluster.node import Node, sees
from rerank.utils.errors import UserError
from rerank.utils.workers import SECONDS_TO_END, Pipe, prepare

SECONDS_BETWEEN_LOOKS = 3.0
"""How often the driver looks for new nodes, and whether the head answers, while no job ends."""
SECONDS_WITHOUT_HEAD = 10.0
ATTEMPTS = 2
"""How often a client at ray:// tries to connect."""
MOST_LOSSES = 3
"""A job is given up when its node was lost so many times."""

MOST_LOSSES_AT_ENTRY = 20

Resources = dict[str, float]
"""GPU, CPU and others -> how many."""


def drive(pipe: Pipe, work: Work, jobs: Sequence[bytes]) -> None:
    """The main function of the driver's process; it reports to the command through the pipe."""
    prepare()
    with open(os.devnull, "w") as silence:  # noqa: PTH123 - Ray's C++ writes to the descriptors
        for descriptor in (1, 2):
            os.dup2(silence.fileno(), descriptor)
    os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"  # under `uv run` Ray would copy the folder to the nodes
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        from ray.exceptions import RayError, RayTaskError

        try:
            _connect(work.engine)
            pipe.send(("connected", 0, ""))
            _run_all(pipe, work, jobs)
        except UserError as error:
            pipe.send(("refused", 0, str(error)))
        except RayTaskError:  # an error of ours on a node
            pipe.send(("broken", 0, traceback.format_exc()))
        except (RayError, ConnectionError) as error:
            line = f"{error}".strip().splitlines()[0]
            pipe.send(("refused", 0, f"--on {work.engine}: the connection to Ray is lost: {line}{AGAIN}"))
        except Exception:
            pipe.send(("broken", 0, traceback.format_exc()))


def _connect(engine: str) -> None:
    """Connects this process to the cluster; raises UserError if there is none."""
    import ray

    address = engine if engine != RAY else os.environ.get("RAY_ADDRESS") or "auto"
    remedy = "start one with `ray start --head`, or name its head: --on ray://HOST:10001, or RAY_ADDRESS=HOST:6379"
    if address not in ("auto", "local") and (reason := _silence(address, 10.0)):
        raise UserError(f"--on {engine}: no Ray cluster answers at {address}: {reason}; {remedy}")
    for attempt in range(ATTEMPTS):
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, namespace="rerank")
            break
        except (ConnectionError, ValueError, RuntimeError, ImportError, ray.exceptions.RayError) as error:
            if isinstance(error, ConnectionAbortedError) and attempt < ATTEMPTS - 1:
                continue  # the process that the head starts for a client now and then ends at once
            line = f"{error}".strip().splitlines()[0]
            raise UserError(f"--on {engine}: no Ray cluster can be reached: {line.rstrip('.')}; {remedy}") from error
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Ray has set its own handler


def _silence(address: str, seconds: float) -> str:
    """Why nothing answers at ray://HOST:PORT or HOST:PORT; "" if something does."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), seconds).close()
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def _run_all(pipe: Pipe, work: Work, jobs: Sequence[bytes]) -> None:
    """Has all jobs run, and reports each when it has ended."""
    import ray

    nodes = _alive()
    share = _share(work, nodes)
    _expect_seen(work, [node for node in nodes if _room(node, share)])
    actor_class: Any = ray.remote(Node).options(
        num_cpus=share.get("CPU", 0), num_gpus=share.get("GPU", 0), max_concurrency=2, max_restarts=0
    )
    waiting, losses = deque(range(len(jobs))), Counter[int | None]()
    hired: dict[Any, tuple[Any, int | None]] = {}  # what is waited for -> the actor, and its job unless it enters
    head, said = _Head(work.engine), False
    try:
        while waiting or any(job is not None for _, job in hired.values()):
            room = work.workers or max(1, sum(_room(node, share) for node in nodes))
            at_work = sum(job is not None for _, job in hired.values())
            while len(hired) < min(room, at_work + len(waiting)):
                actor = actor_class.remote(work)
                hired[actor.enter.remote()] = actor, None
            done, _ = ray.wait(list(hired), timeout=SECONDS_BETWEEN_LOOKS)
            if not done and head.answers(pipe):
                nodes = _alive()
                if not (said or at_work or any(_room(node, share) for node in nodes)):
                    said = True
                    needed = ", ".join(f"{amount:g} {name}" for name, amount in share.items() if amount)
                    pipe.send(("log", 0, f"Ray: no node is left that has {needed}; waiting for one"))
            for awaited in done:
                actor, job = hired.pop(awaited)
                try:
                    answer = ray.get(awaited)
                except ray.exceptions.RayActorError as error:
                    with contextlib.suppress(ray.exceptions.RayError):
                        ray.kill(actor)  # it may only be out of reach
                    if head.answers(pipe):
                        nodes = _alive()
                    _lose(pipe, job, losses, waiting, error)
                    continue
                if job is not None:
                    pipe.send(("ended", job, answer))
                elif not answer:
                    raise _unseen(work, "a node that has joined")
                if waiting:
                    job = waiting.popleft()
                    hired[actor.run.remote(jobs[job])] = actor, job
                else:
                    ray.kill(actor)
    finally:
        _stop([actor for actor, job in hired.values() if job is not None])


def _lose(pipe: Pipe, job: int | None, losses: Counter[int | None], waiting: deque[int], error: Exception) -> None:
    """Puts a job whose actor was lost first in the queue, or reports its end if that has happened too often.

    Raises UserError if actors are lost before they have a job, again and again.
    """
    losses[job] += 1
    reason = " ".join(f"{error}".split())
    if job is None:
        if losses[job] == MOST_LOSSES_AT_ENTRY:
            raise UserError(f"--on ray: workers cannot be started on the nodes; the last one: {reason}")
    elif losses[job] == MOST_LOSSES:
        pipe.send(("ended", job, f"its node was lost {MOST_LOSSES} times; the last time: {reason}"))
    else:
        waiting.appendleft(job)
        pipe.send(("log", job, f"Ray: a node was lost, and its job goes to another: {reason}"))


def _alive() -> list[dict[str, Any]]:
    """The nodes of the cluster that are alive."""
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def _share(work: Work, nodes: Iterable[dict[str, Any]]) -> Resources:
    """What a worker takes of its node: a GPU and its share of the CPUs, or the threads of a worker.

    Raises UserError if no node has any.
    """
    resources: list[Resources] = [node["Resources"] for node in nodes]
    if work.gpus and (found := [of_node for of_node in resources if of_node.get("GPU", 0) >= 1]):
        cpus = min(of_node.get("CPU", 0) / of_node["GPU"] for of_node in found)
        return {"GPU": 1, "CPU": int(cpus) or cpus}
    counts = [of_node["CPU"] for of_node in resources if of_node.get("CPU", 0) >= 1]
    if not counts:
        raise UserError(f"--on {work.engine}: no node of the cluster has a CPU for jobs; expected one or more")
    return {"CPU": max(1, min(int(sum(counts)) // work.workers, int(min(counts)))) if work.workers else 1}


def _room(node: dict[str, Any], share: Resources) -> int:
    """How many workers fit on a node."""
    return min(int(node["Resources"].get(name, 0) // amount) for name, amount in share.items() if amount)


def _expect_seen(work: Work, nodes: Sequence[dict[str, Any]]) -> None:
    """Raises UserError, which names the node, if one does not see the command's folders or has no rerank."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(sees)
    asked = [
        look.options(
            num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote(work)
        for node in nodes
    ]
    for node, answer in zip(nodes, asked, strict=True):
        name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
        try:
            seen = ray.get(answer, timeout=60)
        except ray.exceptions.TaskUnschedulableError:  # the node has left the cluster since
            continue
        except Exception as error:  # whatever an import on the node raises, or Ray
            line = f"{error}".strip().splitlines()[-1]
            raise UserError(
                f"--on {work.engine}: node {name} cannot run rerank: {line}; install it there too"
            ) from error
        if not seen:
            raise _unseen(work, f"node {name}")


def _unseen(work: Work, node: str) -> UserError:
    folder = work.probe.parents[1]
    return UserError(
        f"--on {work.engine}: {node} does not see what this machine writes in {folder}, or not {work.cwd}; all nodes "
        "need these folders by the same names, on a disk that they share"
    )


class _Head:
    """The head of the cluster, which has to answer."""

    def __init__(self, engine: str) -> None:
        import ray

        given = os.environ.get("RAY_ADDRESS", "auto") if engine == RAY else engine
        self.address = ray.get_runtime_context().gcs_address if given in ("auto", "local", "") else given
        self.engine, self.answered = engine, time.monotonic()

    def answers(self, pipe: Pipe) -> bool:
        """Whether it answers now; if it has not for a while, reports so and ends this process.

        Ray itself would wait for the head for a minute, whatever is asked, and then end the process without a word.
        """
        reason = _silence(self.address, SECONDS_BETWEEN_LOOKS)
        if not reason:
            self.answered = time.monotonic()
        elif time.monotonic() - self.answered > SECONDS_WITHOUT_HEAD:
            line = f"--on {self.engine}: the head of the Ray cluster, {self.address}, is lost: {reason}{AGAIN}"
            pipe.send(("refused", 0, line))
            os._exit(1)
        return not reason


def _stop(actors: Sequence[Any]) -> None:
    """Interrupts the jobs of these actors and waits until they have cleaned up; then leaves the cluster."""
    import ray

    stopping = [actor.stop.remote() for actor in actors]
    if stopping:
        ray.wait(stopping, num_returns=len(stopping), timeout=SECONDS_TO_END)
    ray.shutdown()
