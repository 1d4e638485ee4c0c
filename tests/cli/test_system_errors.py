"""Errors of the system: one line for a file that it refuses, the traceback for what may be a mistake in a program."""

import errno
import json
import os
import subprocess
from pathlib import Path

import pytest

from rerank.cli.main import run_and_exit
from rerank.utils import files
from tests.support.small_collection import failed


def error_of(number: int, file: object = "some/file") -> OSError:
    return OSError(number, os.strerror(number), file)


def raises(error: Exception):
    """A call by this module, which is not of rerank."""

    def call() -> None:
        raise error

    return lambda _: run_and_exit(call)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("file", ["some/file", b"some/file"])
def test_a_file_that_the_system_refuses_is_one_line_whoever_opened_it(capsys, number, file):
    line = failed(capsys, main=raises(error_of(number, file)))
    assert line == f"rerank: some/file: {os.strerror(number)}"


@pytest.mark.parametrize(
    "error",
    [
        error_of(errno.ENOENT),
        error_of(errno.EEXIST),
        error_of(errno.ECONNREFUSED),
        error_of(errno.ENOEXEC),
        error_of(errno.EACCES, file=3),
        OSError(errno.ENOENT, "without a file"),
        OSError("of another package"),
    ],
)
def test_the_error_of_another_package_keeps_its_traceback(error):
    with pytest.raises(OSError) as raised:  # noqa: PT011 - the same object
        raises(error)([])
    assert raised.value is error


def test_a_file_that_rerank_misses_is_one_line(capsys, tmp_path):
    missing = tmp_path / "missing"
    line = failed(capsys, main=lambda _: run_and_exit(lambda: files.file_hash(missing)))
    assert line == f"rerank: {missing}: No such file or directory"


def test_a_program_that_is_missing_is_no_file_of_the_user(tmp_path):
    with pytest.raises(FileNotFoundError):
        run_and_exit(lambda: subprocess.run([str(tmp_path / "program")], check=True))


def test_what_another_package_misses_for_rerank_keeps_its_traceback(monkeypatch, tmp_path):
    """As if a package that rerank calls looked for a file of its own."""
    monkeypatch.setattr(files, "progress", lambda *arguments, **options: json_of_this_test(tmp_path / "own.json"))
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError):
        run_and_exit(lambda: files.file_hash(tmp_path / "file"))


def json_of_this_test(path: Path) -> object:
    return json.loads(path.read_text())
