"""Which errors of the system are the one line of a command, and not the traceback of a mistake in a program."""

import errno
import sys
import traceback

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
CLOSED_PIPE = errno.EPIPE
REFUSED = (
    *FULL,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ESTALE,
    errno.EMFILE,
    errno.ENFILE,
)
"""The system refuses a file. The name and the reason explain it, also if another package opened the file."""
GONE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY)
"""A file is not what it was expected to be; in another package this may be anything, such as a program it starts."""


def is_of_a_file(error: OSError) -> bool:
    """Whether an error is that of a file which the system refuses, or which someone removed while we used it.

    The second counts only if rerank itself asked for the file: if, in the traceback, its code comes right before that
    of the standard library (but subprocess, whose missing file is a program).
    """
    if not isinstance(error.filename, str | bytes):
        return False
    return error.errno in REFUSED or (error.errno in GONE and _asked_by_us(error))


def _asked_by_us(error: OSError) -> bool:
    packages = [
        str(frame.f_globals.get("__name__")).partition(".")[0] for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    others = [package for package in packages if package not in sys.stdlib_module_names or package == "subprocess"]
    return bool(others) and others[-1] == __name__.partition(".")[0]
