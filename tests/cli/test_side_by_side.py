"""Commands that start at the same moment in a new folder: each gives what it gives alone; what they share is made once.

RERANK_BESIDE=8 starts eight commands of each kind, instead of one; RERANK_ROUNDS=20 does so twenty times.
"""

import os
import shutil
from pathlib import Path

import pytest

from scripts.campaign.forked import Command, Forked
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
def folder(home, tmp_path_factory):
    folder = tmp_path_factory.mktemp("beside") / "home"
    shutil.copytree(home, folder)
    (folder / "runs").rename(folder / "reference")
    return folder


@pytest.fixture(scope="module")
def run(folder):
    """Runs commands at the same time; the checkpoint and the results of each command alone are made first."""
    commands = Forked()

    def run(*words: list[str]) -> list[str]:
        """The messages of the commands, all of which end well."""
        ended = commands.run(folder, *(Command(tuple(each)) for each in words))
        failed = [(each, one.code, one.err[-500:]) for each, one in zip(words, ended, strict=True)]
        assert not [one for one in failed if one[1] or "Traceback" in one[2]]
        return [one.err for one in ended]

    run(words_of("train", 0, "reference"))
    shutil.copytree(folder / "reference/towns/smoothi/fold1/checkpoint", folder / "checkpoint")
    for kind in ("pretrain", "score"):
        run(words_of(kind, 0, "reference"))
    yield run
    commands.close()


@pytest.mark.parametrize("number", range(ROUNDS))
def test_commands_of_four_kinds_end_well_and_as_if_alone(folder, run, number):
    name = f"round{number}"
    logs = run(*(words_of(kind, place, name) for place in range(BESIDE) for kind in KINDS))
    expected = results(folder / "reference", 0)
    for place in range(BESIDE):
        assert results(folder / name, place) == expected
    assert sum("BM25 of 15 queries" in log for log in logs) == 1
    assert not list((folder / name).rglob(".*.part"))
    shutil.rmtree(folder / name)
