"""Concurrent processes take turns."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rerank.utils.errors import UserError
from rerank.utils.locks import is_locked, locked, make_once
from tests.support.paths import ROOT

HOLD = """
import sys, time
from pathlib import Path
from rerank.utils.locks import locked
with locked(Path(sys.argv[1]), "index"):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
    (Path(sys.argv[1]) / "made").touch()
"""


def hold(folder, seconds):
    command = [sys.executable, "-c", HOLD, str(folder), str(seconds)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    return process


def test_a_process_waits_for_another_and_says_so_once(tmp_path, capsys):
    assert not is_locked(tmp_path / "new", "index")
    with hold(tmp_path / "new", 0.5) as other:
        assert is_locked(tmp_path / "new", "index")
        with locked(tmp_path / "new", "index"):
            assert (tmp_path / "new" / "made").exists()
        assert other.wait() == 0
    message = f"{tmp_path / 'new'}: waiting for another process, which makes the index\n"
    assert capsys.readouterr().err == message
    with locked(tmp_path / "new", "index"):
        assert capsys.readouterr().err == ""


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(UserError, match="file/below: cannot be written: Not a directory"),
        locked(tmp_path / "file" / "below", "index"),
    ):
        pass


def test_what_several_make_at_the_same_time_is_made_once_and_never_replaced(tmp_path):
    target, made = tmp_path / "new" / "target", []

    def make():
        made.append(1)
        time.sleep(0.05)
        target.touch()

    with ThreadPoolExecutor(8) as pool:
        for call in [pool.submit(make_once, target, "index", make) for _ in range(8)]:
            call.result()
    assert (made, target.exists()) == ([1], True)
    with locked(target.parent, "index"):  # what exists needs no lock, and no folder that can be written to
        make_once(target, "index", make)
