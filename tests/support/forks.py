"""What a process does first that was forked from another one."""

import threading

from tqdm import tqdm


def own_progress_lock() -> None:
    """Gives a forked process a lock of its own for progress bars.

    tqdm's is shared with the process that forked it, which would wait forever if this one is killed while it prints.
    """
    tqdm.set_lock(threading.RLock())
