"""The suite itself: whatever crashes or hangs, it ends with an error that names the test."""

import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT
from tests.support.patience import SECONDS

CRASHES = "import ctypes, time\ndef test_it():\n    time.sleep(1)\n    ctypes.string_at(0)\n"
HOLDS_THE_INTERPRETER = "import ctypes\ndef test_it():\n    ctypes.PyDLL(None).sleep(600)\n"
HANGS_AFTER_A_FAILURE = """
import ctypes, pytest
@pytest.fixture
def world():
    yield
    ctypes.PyDLL(None).sleep(600)
def test_it(world):
    assert False
"""
SETTINGS = "[pytest]\nfaulthandler_timeout = 2\nfaulthandler_exit_on_timeout = true\n"


@pytest.mark.parametrize(
    "fault", [CRASHES, HOLDS_THE_INTERPRETER, HANGS_AFTER_A_FAILURE], ids=["crash", "hang", "failure"]
)
def test_it_ends_with_an_error_whatever_happens_to_a_process(tmp_path, fault):
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    (tmp_path / "test_fault.py").write_text(fault)
    for number in range(4):
        (tmp_path / f"test_sound{number}.py").write_text("def test_it():\n    pass\n")
    flags = ["--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder", "--max-worker-restart", "0"]
    words = [sys.executable, "-m", "pytest", "-p", "tests.support.watch", *flags]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "the process that ran test_fault.py::test_it died" in done.stdout
    assert "test_fault.py" in done.stderr  # the stacks
