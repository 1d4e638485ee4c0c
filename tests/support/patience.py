"""How long tests wait, on idle cores and on busy ones.

    python -m tests.support.patience

prints how many times as long as on an idle machine, for `scripts/test`.
"""

import math
import os
import time
from collections.abc import Callable

BUSY = max(1, math.ceil(os.getloadavg()[0] / (os.cpu_count() or 1)))
"""Processes that want each core."""

SECONDS = 60.0 * BUSY
"""For what takes a few seconds on an idle machine."""


def until(true: Callable[[], object]) -> None:
    """Waits until `true()` is true, and fails if that takes longer than SECONDS."""
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


if __name__ == "__main__":
    print(BUSY)
