"""How long tests wait, on idle cores and on busy ones.

    python -m tests.support.patience

prints how many times as long as on an idle machine, for `scripts/test`.
"""

import math
import os

BUSY = max(1, math.ceil(os.getloadavg()[0] / (os.cpu_count() or 1)))
"""Processes that want each core."""

SECONDS = 60.0 * BUSY
"""For what takes a few seconds on an idle machine."""

if __name__ == "__main__":
    print(BUSY)
