"""Files that a killed process goes on with: the last save is kept, damage is not, and the result is the same."""

import json
import signal
import subprocess
import sys

import pytest

from rerank.utils import integrity as module
from rerank.utils.errors import UserError
from rerank.utils.integrity import facts_of, resumable, unfinished_folder
from tests.support.paths import ROOT
from tests.support.patience import SECONDS

WRITE = """
import os, signal, sys
from rerank.utils import integrity as module
from rerank.utils.integrity import resumable
module.SECONDS_BETWEEN_SAVES = 0.0
with resumable(module.Path(sys.argv[1]), ["a", "b"], "letters") as files:
    for number in range(files.done, 60):
        files.files["a"].write(b"%d " % number)
        files.files["b"].write(bytes([number % 256]))
        if number == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        files.finish_item()
"""


@pytest.fixture(autouse=True)
def saved_at_once(monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_SAVES", 0.0)


def write(target, count=10, work="letters", fail_at=None):
    """Writes `count` items, and gives those that this call wrote."""
    written = []
    with resumable(target, ["a", "b"], work) as files:
        for number in range(files.done, count):
            files.files["a"].write(b"%d " % number)
            files.files["b"].write(bytes([number]))
            if number == fail_at:
                raise KeyboardInterrupt
            files.facts["last"] = number
            files.finish_item()
            written.append(number)
    return written


def interrupt(target, at=4):
    with pytest.raises(KeyboardInterrupt):
        write(target, fail_at=at)


def contents(target):
    return [(unfinished_folder(target) / name).read_bytes() for name in ("a", "b")]


def test_what_was_interrupted_goes_on_and_is_the_same(tmp_path):
    write(tmp_path / "whole")
    interrupt(tmp_path / "cut")
    assert write(tmp_path / "cut") == [4, 5, 6, 7, 8, 9]
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")
    states = [json.loads((unfinished_folder(tmp_path / name) / "state.json").read_bytes()) for name in ("cut", "whole")]
    assert states[0] == states[1]
    assert states[0]["files"]["a"] == facts_of(unfinished_folder(tmp_path / "cut") / "a")
    assert states[0]["facts"] == {"last": 9}


def test_a_killed_process_loses_what_came_after_the_last_save(tmp_path):
    command = [sys.executable, "-c", WRITE, str(tmp_path / "killed")]
    for at in ("40", "41"):
        assert subprocess.run([*command, at], cwd=ROOT, timeout=SECONDS).returncode == -signal.SIGKILL
        state = json.loads((unfinished_folder(tmp_path / "killed") / "state.json").read_bytes())
        assert state["done"] == int(at)
    subprocess.run([*command, "-1"], cwd=ROOT, timeout=SECONDS, check=True)
    subprocess.run([sys.executable, "-c", WRITE, str(tmp_path / "whole"), "-1"], cwd=ROOT, timeout=SECONDS, check=True)
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


DAMAGES = {
    "another byte": lambda folder: (folder / "a").write_bytes(b"x" + (folder / "a").read_bytes()[1:]),
    "a file removed": lambda folder: (folder / "a").unlink(),
    "no state": lambda folder: (folder / "state.json").unlink(),
    "half a state": lambda folder: (folder / "state.json").write_bytes(b'{"work": "letters", "do'),
    "another state": lambda folder: (folder / "state.json").write_text(
        json.dumps({"work": "letters", "done": 3, "files": {}, "facts": {}})
    ),
}


@pytest.mark.parametrize("damage", [*DAMAGES, None])
def test_damage_and_other_work_begin_again(tmp_path, damage):
    write(tmp_path / "whole")
    interrupt(tmp_path / "cut")
    if damage:
        DAMAGES[damage](unfinished_folder(tmp_path / "cut"))
    assert write(tmp_path / "cut", work="letters" if damage else "digits") == list(range(10))
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_nothing_is_left_if_nothing_was_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_SAVES", 60.0)
    interrupt(tmp_path / "cut")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_line_and_resumes(tmp_path, monkeypatch):
    def refuse(self, data):
        raise OSError(28, "No space left on device")

    interrupt(tmp_path / "cut")
    with monkeypatch.context() as patch:
        patch.setattr(module.RecordedFile, "write", refuse)
        with pytest.raises(UserError, match="cut: cannot be written: No space left on device"):
            write(tmp_path / "cut")
    assert write(tmp_path / "cut") == [4, 5, 6, 7, 8, 9]
