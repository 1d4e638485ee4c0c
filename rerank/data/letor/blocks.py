"""Reads a text file, gzipped or not, in blocks of whole lines, and hashes it."""

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rerank.data import text_lines
from rerank.data.letor.line_errors import LINE
from rerank.data.text_lines import gzip_error_in_one_line

BLOCK = 4 * 2**20
"""Bytes of text that are read at a time."""
LONGEST_LINE = 4 * 2**20


class HashedFile:
    """A file opened for reading that keeps the SHA-256 and the number of the bytes read so far."""

    def __init__(self, path: Path) -> None:
        self._file: Any = path.open("rb")
        self._hash = hashlib.sha256()
        self.position = 0

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most `size`."""
        data: bytes = self._file.read(size)
        self._hash.update(data)
        self.position += len(data)
        return data

    def sha256(self) -> str:
        """The hash of the whole file, in hexadecimal digits; reads the rest first."""
        while self.read(BLOCK):
            pass
        return self._hash.hexdigest()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def blocks(path: Path, file: HashedFile) -> Iterator[bytes]:
    """The text in blocks of whole lines. Raises UserError for a damaged file and for a line that is too long."""
    stream: Any = gzip.GzipFile(fileobj=file, mode="rb") if path.suffix == ".gz" else file  # type: ignore[call-overload]
    with gzip_error_in_one_line(path):
        yield from text_lines.blocks(stream, path, f"`{LINE}`", LONGEST_LINE, BLOCK)
