"""A Ray cluster of nodes with one CPU each on this machine, in a process of its own.

The tests' process then has no thread of Ray beside those of Java and torch, as the process of a user has none.

    python -m tests.support.ray_cluster

reads a word a line (add, remove or stop), and answers each with a line of JSON: what the cluster is then. It stops the
cluster when its input ends, so that the nodes do not outlive the tests.
"""

import itertools
import json
import os
import subprocess
import sys
from typing import NamedTuple

from tests.support.paths import ROOT
from tests.support.processes import free_port

NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}


class Nodes(NamedTuple):
    """The address, the port for clients, and the process IDs of the raylets, the head's first, and of the GCS."""

    address: str
    client_port: int
    raylets: list[int]
    gcs: int


class Cluster:
    """The cluster as the tests see it. Its head runs when it is made."""

    def __init__(self) -> None:
        environment = {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        environment["RAY_worker_niceness"] = "0"  # 15 by default, which gets no time on a busy machine
        environment["GRPC_ENABLE_FORK_SUPPORT"] = "0"  # with it, what Ray forks for a client may crash in gRPC
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.ray_cluster"],
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.nodes = self._answer()

    def add_node(self) -> None:
        self._do("add")

    def remove_node(self) -> None:
        """Kills a node that is not the head's."""
        self._do("remove")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.communicate("stop\n")

    def _do(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        self.nodes = self._answer()

    def _answer(self) -> Nodes:
        assert self.process.stdout is not None
        return Nodes(**json.loads(self.process.stdout.readline()))


def main() -> None:
    """Starts the head, and does what each line of the input says."""
    from ray.cluster_utils import Cluster as RayCluster

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray prints
    port = free_port()
    cluster = RayCluster(initialize_head=True, head_node_args=NODE | {"ray_client_server_port": port})
    try:
        for word in itertools.chain([""], iter(sys.stdin.readline, "")):
            if word == "add\n":
                cluster.add_node(**NODE)
            elif word == "remove\n":
                cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
            elif word == "stop\n":
                return
            nodes = [cluster.head_node, *cluster.worker_nodes]
            raylets = [node.all_processes["raylet"][0].process.pid for node in nodes]
            gcs = cluster.head_node.all_processes["gcs_server"][0].process.pid
            print(json.dumps(Nodes(cluster.address, port, raylets, gcs)._asdict()), file=answers, flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
