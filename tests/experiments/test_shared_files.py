"""What commands share is made once, under a lock, and stays as it is while others have it open."""

import shutil
from pathlib import Path

import pytest

from rerank.cli.main import main
from tests.support.small_collection import command, run_beside_another

RETRIEVE = ["retrieve", "--collection", "towns"]
TRAIN = command("--fold", "1", "--epochs", "1")


@pytest.mark.parametrize(
    ("folder", "what", "words"),
    [
        ("runs/towns", "ranking", RETRIEVE),
        ("runs/towns/index", "index", RETRIEVE),
        ("runs/towns/tokens", "tokens", TRAIN),
    ],
)
def test_a_command_waits_for_another_that_makes_the_same(here, capsys, folder, what, words):
    if words is RETRIEVE:
        shutil.rmtree("runs")
    run_beside_another(capsys, Path(folder), what, *words)


def test_what_is_there_is_taken_as_it_is(here):
    main(TRAIN)
    shared = [path for name in ("index", "tokens") for path in Path("runs/towns", name).glob("*/*")]
    shared.append(Path("runs/towns/bm25.run"))
    before = {path: path.stat() for path in shared}
    main([*TRAIN, "--name", "second"])
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in shared} == {
        path: (status.st_ino, status.st_mtime_ns) for path, status in before.items()
    }
    assert len(shared) > 5
