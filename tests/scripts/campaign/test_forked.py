"""Commands in forked processes: what happens to them, and what is seen of it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.campaign import fork_server
from scripts.campaign.forked import Command, Forked
from tests.support.patience import SECONDS

HERE = "tests.scripts.campaign.planted:"


@pytest.fixture(scope="module")
def forked():
    commands = Forked({"GREETING": "hello"})
    yield commands
    commands.close()


def test_output_and_exit_code_of_commands_at_the_same_time(forked, tmp_path):
    first, second = forked.run(tmp_path, Command(("a",), HERE + "greet"), Command(("b", "c"), HERE + "greet"))
    assert (first.code, first.out, first.err) == (1, f"hello a {tmp_path.name}\n", "aside\n")
    assert (second.code, second.out) == (2, f"hello b c {tmp_path.name}\n")
    assert not first.hung


def test_signals_and_limits(forked, tmp_path):
    killed = Command((), HERE + "wait", signals=((0.1, int(signal.SIGTERM)),))
    endless = Command((), HERE + "wait", limit=0.2)
    limited = Command((), HERE + "write", largest_file=100)
    begin = time.monotonic()
    terminated, hanging, refused = forked.run(tmp_path, killed, endless, limited)
    assert time.monotonic() - begin < 30
    assert (terminated.code, terminated.hung) == (-signal.SIGTERM, False)
    assert (hanging.code, hanging.hung) == (-signal.SIGKILL, True)
    assert "File too large" in refused.err
    assert (tmp_path / "file").stat().st_size == 100


def test_memory_is_what_the_command_adds(forked, tmp_path):
    (small,) = forked.run(tmp_path, Command((), HERE + "greet"))
    (large,) = forked.run(tmp_path, Command((), HERE + "take_memory"))
    assert small.megabytes < 100 < 180 < large.megabytes < 600


@pytest.mark.skipif(sys.platform != "linux", reason="processes whose parent has died are found on Linux only")
def test_a_process_that_is_left_behind_is_found_and_killed(monkeypatch, tmp_path):
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, [str(Path(fork_server.__file__).parents[2]), before]))
    )
    script = (
        "import json; from scripts.campaign import fork_server, forked; from dataclasses import asdict;"
        "fork_server.GRACE = 0.1; fork_server.adopt_orphans();"
        f"found = fork_server.run([asdict(forked.Command((), {HERE + 'leave_a_process'!r}))]);"
        "print(json.dumps(found)) if found else None"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=SECONDS)
    assert '"orphans": true' in done.stdout, done.stderr
