import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from rerank.utils.parallel import starting_workers, work
from tests.support.paths import ROOT
from tests.support.patience import until
from tests.support.processes import beside
from tests.support.small_grid import job


def test_a_job_that_fails_and_a_worker_that_dies_cost_that_job_alone():
    words = ["fine", "wrong", "killed", "broken", "well"]
    ended = dict(work(job, words, workers=2))
    assert sorted(ended) == sorted(words)
    assert (ended["fine"], ended["well"], ended["wrong"]) == ("", "", "a mistake")
    assert "ended abruptly" in ended["killed"]
    assert ended["broken"].splitlines()[-1] == "ZeroDivisionError: a fault"
    assert ", in job" in ended["broken"]


def test_a_worker_that_dies_between_two_jobs_costs_none():
    others = multiprocessing.active_children()
    with closing(work(job, ["fine", "well"], workers=1)) as ended:
        assert next(ended) == ("fine", "")
        (idle,) = set(multiprocessing.active_children()) - set(others)
        idle.kill()
        idle.join()
        assert next(ended) == ("well", "")


def test_a_caller_that_blocks_interrupts_blocks_them_after_the_start_of_workers():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        with starting_workers():
            pass
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_an_end_of_the_iteration_interrupts_every_worker_and_waits_for_it(tmp_path):
    waiting = [f"wait {tmp_path / name}" for name in "abc"]
    with closing(work(job, ["fine", *waiting], workers=3)) as ended:
        assert next(ended) == ("fine", "")
        # The next step of the generator would wait for the others: what it has begun is told by their files.
        until(lambda: len(list(tmp_path.iterdir())) == 2)
    files = list(tmp_path.iterdir())
    assert len(files) == 2
    assert [path.read_text() for path in files] == ["interrupted"] * 2
    assert not [path for path in files if Path(f"/proc/{path.suffix[1:]}").exists()]


def test_workers_end_with_their_parent_however_it_ends_and_whatever_it_ignores(tmp_path):
    code = (
        "import signal; from rerank.utils.parallel import work; from tests.support.small_grid import job; "
        "signal.signal(signal.SIGINT, signal.SIG_IGN); "  # as a shell's background jobs do
        f"list(work(job, ['wait {tmp_path / 'a'}'], 1))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    until(lambda: any(tmp_path.iterdir()))
    (path,) = tmp_path.iterdir()
    parent.kill()
    parent.wait()
    until(lambda: path.read_text() == "interrupted")
    until(lambda: not Path(f"/proc/{path.suffix[1:]}").exists())


@pytest.mark.parametrize(("handler", "told"), [(signal.SIG_IGN, ""), (signal.SIG_DFL, "its process was interrupted")])
def test_a_worker_ignores_a_hangup_if_its_parent_does_as_under_nohup(tmp_path, handler, told):
    before = signal.signal(signal.SIGHUP, handler)
    try:
        with closing(work(job, ["fine", f"until {tmp_path / 'a'}"], workers=1)) as ended, beside(hang_up(tmp_path)):
            assert next(ended) == ("fine", "")
            (_, error) = next(ended)
        assert told in error
        assert bool(error) == bool(told)
    finally:
        signal.signal(signal.SIGHUP, before)


def hang_up(folder):
    def send():
        until(lambda: any(folder.iterdir()))
        (path,) = folder.iterdir()
        os.kill(int(path.suffix[1:]), signal.SIGHUP)
        time.sleep(0.1)
        (folder / "a.go").touch()

    return send


def test_each_worker_sees_one_gpu_and_one_that_replaces_it_sees_the_same(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    jobs = [f"until {tmp_path / 'held'}", f"gpu {tmp_path / 'first'}", "killed", f"gpu {tmp_path / 'second'}"]
    with closing(work(job, jobs, workers=2, gpus=["2", "5"])) as ended:
        assert next(ended) == (jobs[1], "")
        assert [word for word, _ in (next(ended), next(ended))] == jobs[2:]
        (tmp_path / "held.go").touch()
        assert list(ended) == [(jobs[0], "")]
    assert [(tmp_path / name).read_text() for name in ("first", "second")] == ["5", "5"]
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
