"""The lines of a text file, gzipped or not, a part at a time: a small file may unpack to one of any size."""

import codecs
import contextlib
import functools
import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from rerank.utils.errors import UserError

BLOCK = 2**18
"""Bytes of text that are read at a time."""
LONGEST_ROW = 2**20
"""Bytes of a row of a table, such as a run: ids have 32,766 bytes at most."""
LONGEST_TEXT = 2**27
"""Bytes of a line that holds texts: a document that Lucene takes has 20 million characters, of 6 bytes in JSON each."""


@contextlib.contextmanager
def open_text(path: str | Path, expected: str) -> Iterator[Any]:
    """A file, open for reading its bytes, unpacked if it is gzipped; raises UserError if it is missing or damaged."""
    try:
        with gzip_error_in_one_line(path), Path(path).open("rb") as file:
            packed = file.peek(2).startswith(b"\x1f\x8b")
            yield gzip.GzipFile(fileobj=file) if packed else file
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; expected {expected}") from error


def read_blocks(
    path: str | Path, expected: str, longest: int = LONGEST_ROW, size: int | None = None
) -> Iterator[bytes]:
    """The text of a file, gzipped or not, in blocks of whole lines of about `size` (else BLOCK) bytes, without a BOM.

    Raises UserError if the file is missing or damaged, and with file and line for a line of more than `longest` bytes.
    """
    with open_text(path, expected) as file:
        yield from blocks(file, path, expected, longest, size or BLOCK)


def blocks(file: Any, path: str | Path, expected: str, longest: int, size: int = BLOCK) -> Iterator[bytes]:
    """The text of an open file in blocks of whole lines, read `size` bytes at a time; only the last may lack its end.

    Raises UserError, with file and line, for a line of more than `longest` bytes, unless it ends in the same block.
    """
    rest, number = b"", 1
    while block := file.read(size):
        block = rest + (block if rest or number > 1 else block.removeprefix(codecs.BOM_UTF8))
        if cut := block.rfind(b"\n") + 1:
            yield block[:cut]
            number += block.count(b"\n")
        rest = block[cut:]
        if len(rest) > longest:
            _fail_length(path, number, expected, longest)
    if rest:
        yield rest


def lines_of(file: Any, path: str | Path, expected: str, longest: int = LONGEST_TEXT) -> Iterator[bytes]:
    """The lines of an open file, with their line ends; raises UserError for one of more than `longest` bytes."""
    for number, line in enumerate(iter(functools.partial(file.readline, longest + 1), b""), 1):
        if len(line) > longest:
            _fail_length(path, number, expected, longest)
        yield line


def size_of_text(path: str | Path) -> int:
    """About how many bytes of text a file has, gzipped or not, for a progress bar; 0 if it cannot be read.

    The last four bytes of a gzipped file are the size of its last part, modulo 2**32.
    """
    if not Path(path).is_file():  # a pipe can be read only once
        return 0
    try:
        with Path(path).open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            size = file.seek(0, os.SEEK_END)
            if not packed or size < 18:
                return size
            file.seek(-4, os.SEEK_END)
            return max(size, int.from_bytes(file.read(4), "little"))
    except OSError:  # left to the reader
        return 0


def fail_line(path: str | Path, number: int, expected: str, got: str) -> NoReturn:
    """Raises UserError for a line of a file."""
    raise UserError(f"{path}:{number}: expected {expected}, got {got}")


@contextlib.contextmanager
def gzip_error_in_one_line(path: str | Path) -> Iterator[None]:
    """Raises UserError if a gzipped file is damaged."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: damaged gzip file: {error}") from error


def _fail_length(path: str | Path, number: int, expected: str, longest: int) -> NoReturn:
    fail_line(path, number, expected, f"a line of more than {longest:,} bytes")
