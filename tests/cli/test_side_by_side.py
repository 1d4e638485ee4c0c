"""Commands that start at the same moment in a new folder: each gives what it gives alone; what they share is made once.

RERANK_BESIDE=8 starts eight commands of each kind, instead of one; RERANK_ROUNDS=20 does so twenty times.
"""

import os
import shutil
from pathlib import Path

import pytest

from tests.support.forked_commands import Forked
from tests.support.small_collection import command

BESIDE = int(os.environ.get("RERANK_BESIDE", "1"))
ROUNDS = int(os.environ.get("RERANK_ROUNDS", "1"))
PRETRAINING = ["--pretraining.steps", "2", "--pretraining.lists-per-step", "2", "--pretraining.held-out", "4"]


def words_of(kind: str, number: int, folder: str) -> list[str]:
    """A command of a kind that writes below `folder`."""
    return {
        "retrieve": ["retrieve", "--collection", "towns"],
        "train": command("--fold", "1", "--epochs", "1"),
        "pretrain": ["pretrain", "--config", "towns.toml", *PRETRAINING, "--out", f"{folder}/pretrained{number}"],
        "score": ["score", "checkpoint", "--collection", "towns", "--out", f"{folder}/scored{number}.run"],
    }[kind] + ["--output.folder", folder]


def results(folder: Path, number: int) -> dict[str, bytes]:
    """What the commands of a number give."""
    files = {
        "retrieve": "towns/bm25.run",
        "train": "towns/smoothi/fold1/test.run",
        "weights": "towns/smoothi/fold1/checkpoint/model.safetensors",
        "pretrain": f"pretrained{number}/model.safetensors",
        "score": f"scored{number}.run",
    }
    found = {kind: (folder / name).read_bytes() for kind, name in files.items()}
    found["score"] = found["score"].replace(f" scored{number}\n".encode(), b" scored\n")
    return found


KINDS = ("retrieve", "train", "pretrain", "score")


@pytest.fixture(scope="module")
def forked(home, tmp_path_factory):
    folder = tmp_path_factory.mktemp("beside") / "home"
    shutil.copytree(home, folder)
    (folder / "runs").rename(folder / "reference")
    commands = Forked(folder)
    commands.timed(*words_of("train", 0, "reference"))
    shutil.copytree(folder / "reference/towns/smoothi/fold1/checkpoint", folder / "checkpoint")
    for kind in ("pretrain", "score"):
        commands.timed(*words_of(kind, 0, "reference"))
    yield commands
    commands.close()


@pytest.mark.parametrize("number", range(ROUNDS))
def test_commands_of_four_kinds_end_well_and_as_if_alone(forked, number):
    folder = f"round{number}"
    started = [(kind, place) for place in range(BESIDE) for kind in KINDS]
    ended = forked.run(*({"words": words_of(kind, place, folder)} for kind, place in started))
    failed = [
        (kind, place, code, log[-500:])
        for (kind, place), (code, log) in zip(started, ended, strict=True)
        if code or "Traceback" in log
    ]
    assert not failed
    expected = results(forked.folder / "reference", 0)
    for place in range(BESIDE):
        assert results(forked.folder / folder, place) == expected
    logs = [log for _, log in ended]
    assert sum("BM25 of 15 queries" in log for log in logs) == 1
    assert not list((forked.folder / folder).rglob(".*.part"))
    shutil.rmtree(forked.folder / folder)
