"""A text file, gzipped or not, as blocks of whole lines, read in several processes and handed on in order."""

import codecs
import gzip
import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rerank.data.letor.line_errors import LINE
from rerank.errors import UserError

BLOCK = 4 * 2**20
"""Bytes of text that are read at once."""
LONGEST_LINE = 4 * 2**20


class HashedFile:
    """A file opened for reading whose SHA-256 and size so far are known, whatever reads it."""

    def __init__(self, path: Path) -> None:
        self._file: Any = path.open("rb")
        self._hash = hashlib.sha256()
        self.done = 0

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most `size`."""
        data: bytes = self._file.read(size)
        self._hash.update(data)
        self.done += len(data)
        return data

    def sha256(self) -> str:
        """Of what was read, in hexadecimal digits; all of the rest is read first."""
        while self.read(BLOCK):
            pass
        return self._hash.hexdigest()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def blocks(path: Path, file: HashedFile) -> Iterator[bytes]:
    """The text in blocks of whole lines; raises UserError for a file that is damaged or has no line ends."""
    stream: Any = gzip.GzipFile(fileobj=file, mode="rb") if path.suffix == ".gz" else file  # type: ignore[call-overload]
    begun, line = b"", 1
    try:
        while block := stream.read(BLOCK):
            block = begun + (block if begun or line > 1 else block.removeprefix(codecs.BOM_UTF8))
            cut = block.rfind(b"\n") + 1
            if cut:
                yield block[:cut]
                line += block.count(b"\n")
            begun = block[cut:]
            if len(begun) > LONGEST_LINE:
                raise UserError(f"{path}:{line}: expected `{LINE}`, got a line of more than {LONGEST_LINE:,} bytes")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: damaged gzip file: {error}") from error
    if begun:
        yield begun
