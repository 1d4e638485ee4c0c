"""A function in a process that is forked from the test's, so that it begins at once."""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tests.support.patience import SECONDS


def fork(log: Path, function: Callable[..., Any], *arguments: Any) -> int:
    """Starts `function(*arguments)` and gives the number of its process; what it prints goes to `log`."""
    child = os.fork()
    if child:
        return child
    code: Any = 1
    try:
        # tqdm's lock is shared with the test's process, which would wait forever if this one is killed while it prints.
        tqdm.set_lock(threading.RLock())
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(round(SECONDS))
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        sys.stdout, sys.stderr = (os.fdopen(descriptor, "w", buffering=1, closefd=False) for descriptor in (1, 2))
        function(*arguments)
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(child: int) -> int:
    """Waits for a process, and gives its exit code, negative for a signal."""
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
