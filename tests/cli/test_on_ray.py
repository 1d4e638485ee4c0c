"""Commands on a Ray cluster of two nodes on this machine: what is lost, what goes on, and what is refused."""

import contextlib
import json
import os
import signal
import sys
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from rerank.cli.main import main
from rerank.data.runs import read_run
from rerank.experiments import sweep
from rerank.pipelines import crossfit
from rerank.utils import cluster as clusters
from rerank.utils.cluster import work_on_ray
from tests.support.patience import until
from tests.support.processes import beside
from tests.support.ray_cluster import Cluster
from tests.support.small_collection import command, exit_code, failed, in_a_copy
from tests.support.small_grid import job, work_here

pytest.importorskip("ray", reason="the extra `cluster` is not installed")


@pytest.fixture(scope="module")
def cluster():
    """A cluster of two nodes with one CPU each, whose head RAY_ADDRESS names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        cluster = Cluster()
        cluster.add_node()
        patch.setenv("RAY_ADDRESS", cluster.nodes.address)
        yield cluster
        cluster.stop()


@pytest.fixture(scope="module")
def trained(trained, tmp_path_factory):
    """A trained fold, and the run that one process scores in three parts."""
    with in_a_copy(trained, tmp_path_factory) as folder:
        main(["score", CHECKPOINT, RUN, "--out", "out.run", "--parts", "3"])
        Path("out.run").rename("whole.run")
    return folder


CHECKPOINT, RUN = "runs/towns/smoothi/fold1/checkpoint", "runs/towns/bm25.run"


def test_a_job_that_fails_or_is_killed_costs_that_job_alone(cluster, monkeypatch):
    """A node has the names of plug-ins."""
    monkeypatch.setenv("RERANK_PLUGINS", "json,csv")
    words = ["fine", "wrong", "killed", "broken", "well", "named"]
    ended = dict(work_on_ray("ray", job, words))
    assert sorted(ended) == sorted(words)
    assert (ended["fine"], ended["well"], ended["wrong"], ended["named"]) == ("", "", "a mistake", "json csv")
    assert ended["killed"].startswith("its node or its process (killed, as for memory) was lost 3 times: ")
    assert ended["broken"].splitlines()[-1] == "ZeroDivisionError: a fault"


def test_an_interrupt_ends_the_jobs_on_the_nodes(cluster, tmp_path):
    waiting = [f"wait {tmp_path / name}" for name in "ab"]
    with closing(work_on_ray("ray", job, ["fine", *waiting])) as ended:
        assert next(ended) == ("fine", "")
        until(lambda: len(list(tmp_path.glob("[ab].*"))) == 2)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["interrupted"] * 2


def test_the_jobs_of_a_node_that_is_removed_go_to_another(cluster, tmp_path):
    names = [tmp_path / "a", tmp_path / "b"]

    def begun():
        return [path for path in tmp_path.glob("[ab].*") if path.suffix != ".go"]

    def remove_a_node():
        until(lambda: len(begun()) == 2)  # one on each node
        cluster.remove_node()
        until(lambda: any(not Path(f"/proc/{path.suffix[1:]}").exists() for path in begun()))
        names[0].with_suffix(".go").touch()
        names[1].with_suffix(".go").touch()

    try:
        with beside(remove_a_node):
            ended = sorted(work_on_ray("ray", job, [f"until {name}" for name in names]))
        assert ended == [(f"until {name}", "") for name in names]
        assert len(begun()) == 3
    finally:
        cluster.add_node()


def test_folds_are_trained_side_by_side_as_they_are_alone(cluster, here, capsys):
    words = command("--collection.folds", "3", "--epochs", "1")
    main([*words, "--fold", "2", "--name", "alone"])
    main([*words, "--fold", "3"])
    capsys.readouterr()
    assert exit_code(*words, "--fold", "all", "--on", "ray") == 0
    printed = capsys.readouterr()
    assert printed.out == "runs/towns/smoothi\n"
    assert "3 folds, 1 of them finished already" in printed.err
    folder = here / "runs" / "towns"
    assert (folder / "smoothi/fold2/test.run").read_bytes().replace(b"smoothi", b"alone") == (
        folder / "alone/fold2/test.run"
    ).read_bytes()
    assert read_run(folder / "smoothi" / "all.run").keys() == read_run(RUN).keys()
    assert exit_code("verify", "runs/towns/smoothi") == 0


def test_a_run_is_scored_in_parts_and_joined_to_that_of_one_process(cluster, there):
    main(["score", CHECKPOINT, RUN, "--out", "out.run", "--parts", "3", "--on", "ray"])
    assert Path("out.run").read_bytes() == Path("whole.run").read_bytes()
    assert not Path("out.run.parts").exists()
    facts = json.loads(Path("out.run.json").read_text())
    assert (facts["parts"], "device" in facts) == (3, False)


def test_a_cross_encoder_of_a_pipeline_is_fitted_as_it_is_alone(cluster, there, monkeypatch):
    """Those of all parts, and no other stage, are jobs of the cluster."""
    jobs = []
    monkeypatch.setattr(
        crossfit, "work_on_ray", lambda *words, **more: jobs.extend(words[2]) or work_on_ray(*words, **more)
    )
    Path("pipeline.toml").write_text(
        '[stages.bm25]\nkind = "bm25"\n[stages.answer]\nkind = "cross-encoder"\nof = "bm25"\nencoder = "encoder"\n'
        "depth = 4\n[stages.answer.training]\nepochs = 1\nlists_per_epoch = 4\n"
    )
    words = ["fit", "towns", "--pipeline", "pipeline.toml"]
    main([*words, "--out", "alone"])
    main([*words, "--out", "side-by-side", "--on", "ray"])
    assert [name for name, _ in jobs] == ["answer"] * 5
    assert Path("side-by-side/runs/answer.run").read_bytes() == Path("alone/runs/answer.run").read_bytes()


@pytest.mark.skipif(" " in sys.executable, reason="Ray does not quote the Python of its server for clients")
def test_a_client_of_ray_from_another_machine(cluster):
    assert sorted(work_on_ray(f"ray://127.0.0.1:{cluster.nodes.client_port}", job, ["fine", "wrong"])) == [
        ("fine", ""),
        ("wrong", "a mistake"),
    ]


@pytest.mark.parametrize("engine", ["ray", "ray://127.0.0.1:1"])
def test_a_head_that_is_not_there_is_one_line(here, capsys, monkeypatch, engine):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    line = failed(capsys, *command("--fold", "all", "--on", engine))
    assert f"--on {engine}: no Ray cluster answers at" in line
    assert "127.0.0.1:1: Connection refused; start one with `ray start --head`" in line
    assert not list(here.glob("runs/towns/smoothi/fold*"))


def test_without_ray_the_line_says_what_to_install(here, capsys, monkeypatch):
    monkeypatch.setattr(clusters, "find_spec", lambda name: None)
    for words in (command(), ["sweep", "towns.toml"], ["score", "encoder", RUN, "--out", "out.run"]):
        line = failed(capsys, *words, "--on", "ray")
        assert line.endswith("--on ray: Ray is not installed; pip install 'ir-rerank[cluster]'")


def test_a_head_that_is_lost_ends_the_command_and_the_same_command_goes_on(cluster, here, capsys, monkeypatch):
    """The last test of this cluster; a second one would take as long again, so the command goes on without."""
    monkeypatch.setattr(sweep, "work", work_here)
    Path("grid.toml").write_text('config = "towns.toml"\n[[grid]]\nloss.name = "hinge"\n')
    words = ["sweep", "grid.toml", "--fold", "1", "--epochs", "8", "--training.patience", "8"]
    fold = here / "runs" / "towns" / "hinge" / "fold1"

    frozen = []

    def kill_the_head():
        until(lambda: (fold / "state" / "epochs.json").exists() and (fold / "log.jsonl").exists())
        for raylet in cluster.nodes.raylets:
            frozen.extend(workers_below(raylet))
        for process in frozen:  # so that the job does not end before the loss is noticed
            process.suspend()
        for process_id in (cluster.nodes.raylets[0], cluster.nodes.gcs):
            os.kill(process_id, signal.SIGKILL)

    with beside(kill_the_head):
        line = failed(capsys, *words, "--on", "ray")
    assert "the Ray cluster" in line
    assert "is lost" in line
    assert "finished jobs are kept" in line
    assert frozen
    cluster.stop()
    for process in frozen:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()
    before = (fold / "log.jsonl").read_text().splitlines()
    assert 0 < len(before) < 8
    assert exit_code(*words) == 0
    assert "the best of 1 finished cells" in capsys.readouterr().out
    after = (fold / "log.jsonl").read_text().splitlines()
    assert len(after) == 8
    assert after[: len(before)] == before


def workers_below(process):
    """The processes that run jobs on a node."""
    return [child for child in psutil.Process(process).children() if child.cmdline()[0].startswith("ray::")]
