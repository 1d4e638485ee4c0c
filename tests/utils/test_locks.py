"""Concurrent processes take turns."""

import subprocess
import sys
import time

import pytest

from rerank.utils.errors import UserError
from rerank.utils.locks import locked
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
    with hold(tmp_path / "new", 0.5) as other:
        with locked(tmp_path / "new", "index"):
            assert (tmp_path / "new" / "made").exists()
        assert other.wait() == 0
    message = f"{tmp_path / 'new'}: waiting for another process, which makes the index\n"
    assert capsys.readouterr().err == message
    with locked(tmp_path / "new", "index"):
        assert capsys.readouterr().err == ""


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    with hold(tmp_path, 60) as other:
        other.kill()
        other.wait()
        before = time.monotonic()
        with locked(tmp_path, "index"):
            assert time.monotonic() - before < 30


def test_other_names_and_other_folders_do_not_wait(tmp_path, capsys):
    with locked(tmp_path / "a", "index"), locked(tmp_path / "a", "fold"), locked(tmp_path / "b", "index"):
        assert capsys.readouterr().err == ""


def test_an_error_in_the_block_is_handed_on_and_frees_the_lock(tmp_path, capsys):
    with pytest.raises(OSError, match="mine"), locked(tmp_path, "index"):
        raise OSError("mine")
    with locked(tmp_path, "index"):
        assert capsys.readouterr().err == ""


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(UserError, match="file/below: cannot be written: Not a directory"),
        locked(tmp_path / "file" / "below", "index"),
    ):
        pass
