"""The suite ends with an error soon after a process of it crashes or hangs.

Three limits, the first two in pyproject.toml: pytest-timeout fails a test that takes too long and goes on; if the test
holds the interpreter, faulthandler prints the stacks and ends the process; when a process of pytest-xdist has died, the
hooks below end the suite, as xdist 3.8 may wait forever for the files that it had given to that process.
"""

import faulthandler
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

SECONDS_TO_END = 60.0
"""The time that the suite has to end by itself after one of its processes died between two tests."""


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Watches what follows a failure, such as the end of fixtures: pytest cancels its own watch when a test fails."""
    seconds = float(node.config.getini("faulthandler_timeout") or 0)
    if seconds:
        faulthandler.dump_traceback_later(seconds, exit=True, file=node.config.stash[fault_handler_stderr_fd_key])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Called by xdist when one of its processes has ended, with an error if it died."""
    if error:
        faulthandler.dump_traceback_later(SECONDS_TO_END, exit=True)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str) -> None:
    """Called by xdist when a process died in a test."""
    pytest.exit(f"the process that ran {crashitem} died", returncode=3)
