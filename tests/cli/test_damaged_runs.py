"""Any file of a finished run folder, damaged at random: every command that reads it ends well or with one line."""

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.support.small_collection import command, ended, in_a_copy

SEED = int(os.environ.get("RERANK_SEED", "0"))
TRIALS = int(os.environ.get("RERANK_EXAMPLES", "0")) or 4
CHECKPOINT = "runs/towns/smoothi/fold1/checkpoint"
COMMANDS = {
    "train": command("--fold", "1"),
    "verify": ["verify", "runs/towns"],
    "report": ["report", "runs/towns", "--out", "page.html"],
    "plot": ["plot", "learning", "runs/towns/smoothi", "--out", "chart.svg"],
    "eval": ["eval", "runs/towns/smoothi/fold1/test.run", "runs/towns/bm25.run", "--fold", "1"],
    "score": ["score", CHECKPOINT, "runs/towns/bm25.run", "--collection", "towns", "--out", "new.run"],
}
"""The commands that read a run folder; Lucene's index is its own."""


@pytest.fixture(scope="module")
def finished(trained, tmp_path_factory):
    """A trained fold, and what the commands keep."""
    with in_a_copy(trained, tmp_path_factory) as folder:
        assert [ended(words) for words in COMMANDS.values()] == [0] * len(COMMANDS)
        for output in ("page.html", "chart.svg", "new.run", "new.run.json"):
            Path(output).unlink()
    return folder


def flip(content: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(content))
    return content[:place] + bytes([content[place] ^ (1 << rng.randrange(8))]) + content[place + 1 :]


def drop_line(content: bytes, rng: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    del lines[rng.randrange(len(lines))]
    return b"".join(lines)


OTHER = (b"", b"{}", b"[]", b"null", b"[1]", b'{"a": "b"}', b'"\\ud800"', b"a = 1", b"\xff\0", b"[" * 100_000)
DAMAGE = {
    "removed": None,
    "cut": lambda content, rng: content[: rng.randrange(len(content))],
    "flipped": flip,
    "less a line": drop_line,
    "other": lambda content, rng: rng.choice(OTHER),
}


@pytest.mark.parametrize("trial", range(TRIALS))
def test_no_traceback(finished, tmp_path, monkeypatch, capsys, trial):
    rng = random.Random(f"{SEED} {trial}")
    shutil.copytree(finished, tmp_path / "home")
    monkeypatch.chdir(tmp_path / "home")
    files = [path for path in Path("runs").rglob("*") if path.is_file() and path.suffix != ".lock"]
    path = rng.choice(sorted(file for file in files if "index" not in file.parts and file.stat().st_size))
    kind = rng.choice(list(DAMAGE))
    if DAMAGE[kind] is None:
        path.unlink()
    else:
        path.write_bytes(DAMAGE[kind](path.read_bytes(), rng))
    for name, words in COMMANDS.items():
        if name == "train" and (kind, path.name) == ("removed", "test.run"):
            continue  # trains again, which is right and slow
        what = f"RERANK_SEED={SEED} trial {trial}: {path} {kind}, {name}"
        try:
            code = ended(words)
        except Exception as error:
            pytest.fail(f"{what}: {type(error).__name__}: {error}")
        output = capsys.readouterr().err
        assert code in ((0, 1, 2) if name == "verify" else (0, 2)), f"{what}: {output[-500:]}"
        assert code != 2 or output.strip().splitlines()[-1].startswith("rerank: "), f"{what}: {output[-500:]}"
