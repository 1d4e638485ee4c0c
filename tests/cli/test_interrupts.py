"""Ctrl-C, SIGTERM and SIGHUP, as a shell sees them; a training that is killed goes on as if it had not been."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rerank.cli.main import TOGETHER, main
from tests.support.paths import ROOT
from tests.support.processes import ended, fork
from tests.support.small_collection import command

SEED = 0
KILLS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
CODES = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGHUP: 129}
RESULTS = ("test.run", "valid.run", "checkpoint/model.safetensors")

COMMAND = """
import contextlib, signal, sys, time
from rerank.cli.main import run_and_exit
from rerank.utils.files import atomic_write

def sleep():
    for _ in range(600):  # a signal that comes just before a sleep begins does not end that sleep
        time.sleep(0.1)

def begin():
    print("begun", flush=True)
    sleep()

def call():
    try:
        with atomic_write(sys.argv[1]) as tmp:
            tmp.mkdir()
            (tmp / "half").touch()
            if "caught" in sys.argv:
                with contextlib.suppress(BaseException):
                    begin()
                if "lost" in sys.argv:
                    raise RecursionError("a half-imported module")
            else:
                begin()
    finally:
        if "slow" in sys.argv:
            print("cleaning", flush=True)
            sleep()

if "nohup" in sys.argv:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
run_and_exit(call)
"""
SIGNALS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated"), (signal.SIGHUP, 129, "hung up")]
LINE = "rerank: {}; nothing is left half-written, and the same command goes on from here\n"


def begun(*words: str, **settings: Any) -> subprocess.Popen:
    """A process of Python that has said that it has begun."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, *words], **({"cwd": ROOT} | settings), **pipes, text=True)
    assert process.stdout.readline() == "begun\n"
    return process


def start(folder: Path, *words: str) -> subprocess.Popen:
    return begun("-c", COMMAND, str(folder / "target"), *words)


@pytest.mark.parametrize("number, code, what", SIGNALS)
@pytest.mark.parametrize("times", [1, 3])
def test_signals_are_one_line_and_the_code_of_the_shell(tmp_path, number, code, what, times):
    process = start(tmp_path)
    for _ in range(times):
        process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (code, LINE.format(what))
    if times == 1:  # a second one also ends what cleans up
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("words", "left"), [(["caught"], ["target"]), (["caught", "lost"], [])])
def test_a_signal_whose_exception_a_library_catches_ends_the_command_after_its_work(tmp_path, words, left):
    """Or at the error that follows, as from what the interrupt left imported by half."""
    process = start(tmp_path, *words)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (143, LINE.format("terminated"))
    assert [path.name for path in tmp_path.iterdir()] == left


@pytest.mark.parametrize("number, code, what", SIGNALS)
@pytest.mark.parametrize("executed", [False, True])
def test_a_signal_during_the_imports_is_one_line_too(tmp_path, number, code, what, executed):
    """A package of this name is found first, and takes a minute to import, or to execute a text as dataclasses do."""
    slow = "import time\nprint('begun', flush=True)\nfor _ in range(600):\n    time.sleep(0.1)"
    (tmp_path / "cyclopts.py").write_text(f"exec({slow!r})" if executed else slow)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    process = begun("-m", "rerank", "eval", "a.run", cwd=tmp_path, env=environment)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (code, LINE.format(what))


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_ends_a_slow_end_with_the_one_line_of_the_first(tmp_path, second):
    process = start(tmp_path, "slow")
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "cleaning\n"
    time.sleep(TOGETHER[second])
    before = time.monotonic()
    process.send_signal(second)
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - before < 20
    assert (process.returncode, errors) == (130, LINE.format("interrupted"))


def test_what_nohup_ignores_stays_ignored(tmp_path):
    process = start(tmp_path, "nohup")
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143


def contents(fold: Path) -> dict[str, bytes]:
    return {name: (fold / name).read_bytes() for name in RESULTS if (fold / name).exists()}


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.rglob(".*") if path.name.endswith((".part", ".old"))]


def train(folder: Path) -> None:
    os.chdir(folder)
    main(command("--fold", "1"))


def test_training_that_is_killed_again_and_again_ends_as_if_it_had_not_been(home, tmp_path):
    rng, log, whole, killed = random.Random(SEED), tmp_path / "log", tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        shutil.copytree(home, folder)
    begin = time.monotonic()
    assert ended(fork(log, train, whole)) == 0, log.read_text()
    seconds = time.monotonic() - begin
    for number in KILLS:
        child = fork(log, train, killed)
        time.sleep(rng.uniform(0.05, 0.8) * seconds)
        os.kill(child, number)
        assert ended(child) in (CODES[number], -number, 0), log.read_text()  # -number: before the command handles it
        assert "Traceback" not in log.read_text()
        assert number == signal.SIGKILL or not leftovers(killed)
    assert ended(fork(log, train, killed)) == 0, log.read_text()
    assert not leftovers(killed)
    expected = contents(whole / "runs/towns/smoothi/fold1")
    assert len(expected) >= 3
    assert contents(killed / "runs/towns/smoothi/fold1") == expected
