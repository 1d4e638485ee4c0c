"""A thread that fails ends its test at once."""

import threading
import time

import pytest

from tests.support.threads import beside


def test_a_failure_ends_what_the_test_waits_for() -> None:
    def fail() -> None:
        raise LookupError("in the thread")

    start = time.monotonic()
    with pytest.raises(LookupError, match="in the thread"), beside(fail):
        threading.Event().wait(30)
    assert time.monotonic() - start < 20
    with pytest.raises(AssertionError, match="has not ended"), beside(lambda: time.sleep(1), 0.01):
        pass
