"""Commands that are killed, or started side by side: the next command gives what an undisturbed one gives."""

import random
import shutil
import signal
from pathlib import Path

import pytest

from tests.support.forked_commands import Forked
from tests.support.small_collection import command

SEED = 0
KILLS = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP)
CODES = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGHUP: 129}
RESULTS = ("test.run", "valid.run", "test.passages.json", "checkpoint/model.safetensors", "checkpoint/head.safetensors")


@pytest.fixture(scope="module")
def forked(home, tmp_path_factory):
    folder = tmp_path_factory.mktemp("forked") / "home"
    shutil.copytree(home, folder)
    commands = Forked(folder)
    yield commands
    commands.close()


def contents(fold: Path) -> dict[str, bytes]:
    return {name: (fold / name).read_bytes() for name in RESULTS if (fold / name).exists()}


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.rglob(".*") if path.name.endswith((".part", ".old"))]


def test_training_that_is_killed_again_and_again_ends_as_if_it_had_not_been(forked):
    rng = random.Random(SEED)
    words = command("--fold", "1")
    seconds = forked.timed(*words, "--output.folder", "reference")
    for number in KILLS:
        after = rng.uniform(0.05, 0.8) * seconds
        ((code, log),) = forked.run({"words": words, "signal": number, "after": after})
        assert code in (CODES[number], -number, 0), log  # -number: before the command handles it
        assert "Traceback" not in log
        assert number == signal.SIGKILL or not leftovers(forked.folder)
    forked.timed(*words)
    assert not leftovers(forked.folder)
    expected = contents(forked.folder / "reference/towns/smoothi/fold1")
    assert len(expected) >= 4
    assert contents(forked.folder / "runs/towns/smoothi/fold1") == expected


def test_commands_side_by_side_in_a_new_folder_make_what_they_share_once(forked):
    retrieve = ["retrieve", "--collection", "towns", "--output.folder", "new"]
    train = command("--fold", "1", "--epochs", "1", "--output.folder", "new")
    ended = forked.run({"words": retrieve}, {"words": retrieve}, {"words": [*train, "--name", "a"]})
    assert [code for code, _ in ended] == [0, 0, 0], ended
    logs = "".join(log for _, log in ended)
    assert logs.count("BM25 of 15 queries") == 1
    assert (forked.folder / "new/towns/bm25.run").read_bytes() == (forked.folder / "runs/towns/bm25.run").read_bytes()
    assert not leftovers(forked.folder)
