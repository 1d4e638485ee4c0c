"""Errors of the system: one line for an error about a file, the traceback for what may be a mistake in a program."""

import errno
import os

import pytest

from rerank.cli.main import run_and_exit
from tests.support.small_collection import failed


def raises(error: Exception):
    """A call that raises the error."""

    def call() -> None:
        raise error

    return lambda _=None: run_and_exit(call)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EMFILE, errno.ENOENT, errno.EEXIST])
@pytest.mark.parametrize("file", ["some/file", b"some/file"])
def test_an_error_about_a_file_is_one_line(capsys, number, file):
    line = failed(capsys, main=raises(OSError(number, os.strerror(number), file)))
    assert line == f"rerank: some/file: {os.strerror(number)}"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ECONNREFUSED, "Connection refused"),
        OSError(errno.EACCES, "of an open file", 3),
        OSError("of another package"),
    ],
)
def test_an_error_without_the_name_of_a_file_keeps_its_traceback(error):
    with pytest.raises(OSError) as raised:  # noqa: PT011 - the same object
        raises(error)()
    assert raised.value is error
