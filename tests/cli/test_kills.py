"""A training that is killed: the next command gives what an undisturbed one gives."""

import random
import shutil
import signal
from pathlib import Path

import pytest

from scripts.campaign.forked import Command, Forked
from tests.support.small_collection import command

SEED = 0
KILLS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
CODES = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGHUP: 129}
RESULTS = ("test.run", "valid.run", "test.passages.json", "checkpoint/model.safetensors", "checkpoint/head.safetensors")


@pytest.fixture(scope="module")
def folder(home, tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed") / "home"
    shutil.copytree(home, folder)
    return folder


@pytest.fixture(scope="module")
def forked(folder):
    commands = Forked()
    commands.warm_up(folder, words_of_train("--output.folder", "warm", "--first-stage.run", "runs/towns/bm25.run"))
    yield commands
    commands.close()


def words_of_train(*words: str) -> tuple[str, ...]:
    return tuple(command("--fold", "1", *words))


def contents(fold: Path) -> dict[str, bytes]:
    return {name: (fold / name).read_bytes() for name in RESULTS if (fold / name).exists()}


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.rglob(".*") if path.name.endswith((".part", ".old"))]


def test_training_that_is_killed_again_and_again_ends_as_if_it_had_not_been(forked, folder):
    rng = random.Random(SEED)
    words = words_of_train()
    (reference,) = forked.run(folder, Command((*words, "--output.folder", "reference")))
    assert reference.code == 0, reference.err
    for number in KILLS:
        after = rng.uniform(0.05, 0.8) * reference.seconds
        (ended,) = forked.run(folder, Command(words, signals=((after, int(number)),)))
        assert ended.code in (CODES[number], -number, 0), ended.err  # -number: before the command handles it
        assert "Traceback" not in ended.err
        assert number == signal.SIGKILL or not leftovers(folder)
    (last,) = forked.run(folder, Command(words))
    assert last.code == 0, last.err
    assert not leftovers(folder)
    expected = contents(folder / "reference/towns/smoothi/fold1")
    assert len(expected) >= 4
    assert contents(folder / "runs/towns/smoothi/fold1") == expected
