"""Reads text files, gzipped or not, in bounded memory: blocks of lines, lines and JSON objects."""

import codecs
import contextlib
import gzip
import zlib
from collections.abc import Iterator, Mapping
from io import BufferedIOBase
from pathlib import Path
from typing import BinaryIO

from rerank.utils.errors import UserError
from rerank.utils.json_files import parse_json, shown

BLOCK = 2**18  # bytes of text that are read at once
LONGEST_ROW = 2**20  # largest number of bytes in a line of a run or another table
LONGEST_LINE = 2**26  # largest number of bytes in any other line, such as a document
MOST_UNPACKED = 2**28  # bytes of text that any gzipped file may have
RATIO = 200  # a gzipped file of more text has so many times its own size at most
LONGEST_ID = 32766  # bytes of the longest term of a Lucene index


@contextlib.contextmanager
def open_text(path: str | Path, expected: str) -> Iterator[BufferedIOBase]:
    """Opens a file to read its bytes, unpacked if it is gzipped; raises UserError if it is missing or damaged."""
    try:
        with Path(path).open("rb") as file:
            packed = file.peek(2).startswith(b"\x1f\x8b")
            yield _Unpacked(file, str(path)) if packed else file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: damaged gzip file: {error}") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; expected {expected}") from error


class _Unpacked(gzip.GzipFile):
    """The text of a gzipped file, which ends in a UserError if it is far longer than such a file's."""

    def __init__(self, packed: BinaryIO, path: str) -> None:
        super().__init__(fileobj=packed)
        self._packed, self._path, self._length = packed, path, 0

    def read(self, size: int | None = -1) -> bytes:
        return self._checked(super().read(size))

    def readline(self, size: int | None = -1) -> bytes:
        return self._checked(super().readline(size))

    def _checked(self, text: bytes) -> bytes:
        self._length += len(text)
        if self._length > MOST_UNPACKED and self._length > RATIO * self._packed.tell():
            raise UserError(
                f"{self._path}: unpacks to over {RATIO} times its size, {self._length:,} bytes and more; expected no "
                "more; if that is right, unpack it with gunzip"
            )
        return text


def read_blocks(
    path: str | Path, expected: str, longest: int = LONGEST_ROW, size: int | None = None
) -> Iterator[bytes]:
    """Yields the text of a file in blocks of whole lines, without a BOM; `size` bytes are read at once, or BLOCK.

    Only the last line may lack its line break. Raises UserError if the file is missing or damaged, and with file and
    line for a line of more than `longest` bytes, unless it ends in the same block.
    """
    rest, number = b"", 1
    with open_text(path, expected) as file:
        while block := file.read(size or BLOCK):
            block = rest + (block if rest or number > 1 else block.removeprefix(codecs.BOM_UTF8))
            if cut := block.rfind(b"\n") + 1:
                yield block[:cut]
                number += block.count(b"\n")
            rest = block[cut:]
            if len(rest) > longest:
                raise UserError(f"{path}:{number}: expected {expected}, got a line of more than {longest:,} bytes")
    if rest:
        yield rest


def read_lines(path: str | Path, expected: str) -> Iterator[tuple[str, int, bytes]]:
    """Yields each line that is not empty: its place as file:line, its first byte in the file, and its bytes.

    A BOM is removed. Raises UserError if the file is missing or damaged, and for a line of over LONGEST_LINE bytes.
    """
    offset = 0
    with open_text(path, expected) as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), 1):
            if len(line) > LONGEST_LINE:
                raise UserError(f"{path}:{number}: expected {expected}, got a line of more than {LONGEST_LINE:,} bytes")
            content = line if offset else line.removeprefix(codecs.BOM_UTF8)
            if content.strip():
                yield f"{path}:{number}", offset, content
            offset += len(line)


def read_objects(path: str | Path, expected: str) -> Iterator[tuple[str, int, dict[str, object]]]:
    """Yields what `read_lines` yields, with the JSON object of each line instead of its bytes."""
    for place, offset, line in read_lines(path, expected):
        yield place, offset, parse_object(line, place, expected)


def parse_object(line: bytes, place: str, expected: str) -> dict[str, object]:
    """The JSON object of a line; raises UserError, whose message begins with `place`, for any other line."""
    try:
        record = parse_json(line, object)
    except ValueError as error:
        raise UserError(f"{place}: {error}; expected {expected}") from None
    if not isinstance(record, dict):
        raise UserError(f"{place}: expected {expected}, got {shown(record)}")
    return record


def text_under(record: Mapping[str, object], key: str, place: str) -> str:
    """The text under a key of the object; raises UserError if there is no text."""
    value = record.get(key)
    if not isinstance(value, str):
        got = shown(value) if key in record else f"none (the keys are {shown(list(record))})"
        raise UserError(f"{place}: expected a text under {key!r}, got {got}")
    return value


def check_id(name: str, where: str, what: str) -> None:
    """Raises UserError for an id that a run file or a Lucene index cannot hold; `where` and `what` describe the id."""
    if name.split() != [name] or "\0" in name:
        raise UserError(f"{where}: {what} {shown(name)} is empty or has white space or a NUL, so no run can hold it")
    if name.startswith("\ufeff"):  # lost where a file begins with it, and where Java gives it back
        raise UserError(f"{where}: {what} {shown(name)} begins with a byte order mark; remove the mark")
    if len(name.encode()) > LONGEST_ID:
        raise UserError(f"{where}: {what} {shown(name)} has {len(name.encode())} bytes; expected {LONGEST_ID} at most")


def size_of(path: str | Path) -> int:
    """The size of a file in bytes; 0 for a pipe or a missing file."""
    return Path(path).stat().st_size if Path(path).is_file() else 0
