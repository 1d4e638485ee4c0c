"""A training that is killed: the next command gives what an undisturbed one gives."""

import os
import random
import shutil
import signal
import time
from pathlib import Path

from rerank.cli.main import main
from tests.support.processes import ended, fork
from tests.support.small_collection import command

SEED = 0
KILLS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
CODES = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGHUP: 129}
RESULTS = ("test.run", "valid.run", "checkpoint/model.safetensors")


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
