"""The codes of documents' token vectors in a SQLite file: made when a text is first asked for, and kept.

A text is known by its hash alone, so a document that changed is another text. Codes that differ from their hash are
made again. If the folder cannot be written, new codes go to a temporary file, which is removed when the process ends.
"""

import contextlib
import functools
import itertools
import os
import sqlite3
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import xxhash

from rerank.utils.errors import UserError
from rerank.utils.progress import progress

FILE = "codes.sqlite"
TABLE = "CREATE TABLE IF NOT EXISTS codes (text BLOB PRIMARY KEY, codes BLOB NOT NULL, hash BLOB NOT NULL)"
CODES = "SELECT codes, hash FROM codes WHERE text = ?"
TEXTS_AT_ONCE = 64  # encoded before they are written: what a kill loses
MOST_SECONDS = 600  # the wait for another process that writes

Encode = Callable[[str], np.ndarray]
"""A text -> the codes of its token vectors, (vectors, width) uint8, which depend on no other text."""


class TokenVectorStore:
    """The codes of texts, `width` bytes for a vector, in a folder that several processes may use."""

    def __init__(self, folder: Path, width: int) -> None:
        self.folder, self._width = folder, width
        self._hashes: dict[str, bytes] = {}  # name -> hash of the text, b"" for one of white space alone

    def __contains__(self, name: str) -> bool:
        return name in self._hashes

    def __getitem__(self, name: str) -> np.ndarray:
        """(vectors, width) uint8: the codes of a text that was added."""
        text = self._hashes[name]
        codes = (self._read(text) or b"") if text else b""
        return np.frombuffer(codes, np.uint8).reshape(-1, self._width)

    def add(self, texts: Mapping[str, str], encode: Encode) -> None:
        """Takes texts, by their names, into the store; encodes those that the folder does not have.

        A text of white space alone has no vector. Raises UserError if the file cannot be read or written.
        """
        hashes = {name: xxhash.xxh3_128_digest(text.encode()) if text.strip() else b"" for name, text in texts.items()}
        missing = [name for name, text in hashes.items() if text and self._read(text) is None]
        left = iter(progress(missing, len(missing), "encoding tokens", show=len(missing) > TEXTS_AT_ONCE))
        while some := list(itertools.islice(left, TEXTS_AT_ONCE)):
            new = {hashes[name]: texts[name] for name in some}
            self._write({text_hash: encode(text).tobytes() for text_hash, text in new.items()})
        self._hashes |= hashes

    def _read(self, text: bytes) -> bytes | None:
        """The codes of the text with this hash; None if the file does not have them undamaged."""
        for database in self._databases:
            with self._refused_in_one_line():
                found: tuple[bytes, bytes] | None = database.execute(CODES, (text,)).fetchone()
            if found and xxhash.xxh3_64_digest(found[0]) == found[1]:
                return found[0]
        return None

    def _write(self, codes: Mapping[bytes, bytes]) -> None:
        rows = [(text, found, xxhash.xxh3_64_digest(found)) for text, found in codes.items()]
        with self._refused_in_one_line(), self._databases[0] as database:  # one transaction: all of them or none
            database.executemany("INSERT OR REPLACE INTO codes VALUES (?, ?, ?)", rows)

    @functools.cached_property
    def _databases(self) -> list[sqlite3.Connection]:
        """The file alone; if it cannot be written, a temporary one, which is, and the file."""
        file = self.folder / FILE
        with self._refused_in_one_line():
            if any(path.exists() and not os.access(path, os.W_OK) for path in (self.folder, file)):
                return [self._open(""), *([self._open(file)] if file.exists() else [])]
            self.folder.mkdir(parents=True, exist_ok=True)
            return [self._open(file)]

    def _open(self, file: str | Path) -> sqlite3.Connection:
        database = sqlite3.connect(file, timeout=MOST_SECONDS, check_same_thread=False)
        weakref.finalize(self, database.close)
        database.execute(TABLE)
        return database

    @contextlib.contextmanager
    def _refused_in_one_line(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise UserError(
                f"{self.folder / FILE}: cannot be written or read: {error}; if damaged, remove it"
            ) from error
