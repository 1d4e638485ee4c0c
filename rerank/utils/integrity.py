"""Records of files: sizes and hashes, kept beside the files, which tell whether a file is the one that was written.

The hash is XXH3, 128 bits: it finds damage and changes, at the speed of memory, and is no protection from forgery.
SHA-256 and BLAKE2 of the standard library take ten times as long.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self, TypedDict

import xxhash

from rerank.utils.files import atomic_write
from rerank.utils.json_files import check_shape, parse_json, shown

RECORD = "files.json"
"""The record of the other files of a folder."""
BLOCK = 2**20  # fits into a processor's cache


class Facts(TypedDict):
    """The size and the hash of a file."""

    bytes: int
    xxh3_128: str


Record = dict[str, dict[str, Any]]
"""The name of a file, relative to a folder -> its size and hash."""


def facts_of(file: Path) -> dict[str, Any]:
    """The size and the hash of a file; raises OSError if it cannot be read."""
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, xxhash.xxh3_128)
        return {"bytes": content.tell(), "xxh3_128": digest.hexdigest()}


class RecordedFile:
    """A file that is written from front to back, and hashed meanwhile; a context that closes it.

    With `kept`, the size and the hash of what an earlier process wrote into it, it is cut there and goes on behind.
    Raises ValueError if the file does not begin with that, and OSError if it cannot be opened.
    """

    def __init__(self, path: Path, kept: dict[str, Any] | None = None) -> None:
        self._digest, self.size = xxhash.xxh3_128(), 0
        self._file = path.open("r+b" if kept else "wb")
        if kept:
            while block := self._file.read(min(BLOCK, kept["bytes"] - self.size)):
                self._digest.update(block)
                self.size += len(block)
            if self.facts() != kept:
                self._file.close()
                raise ValueError(f"{path.name}: has changed")
            self._file.seek(self.size)
            self._file.truncate()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Appends to the file; raises OSError."""
        self._file.write(data)
        self._digest.update(data)
        self.size += memoryview(data).nbytes

    def flush(self) -> None:
        """Hands all that was written to the system; raises OSError."""
        self._file.flush()

    def facts(self) -> dict[str, Any]:
        """The size and the hash of what was written so far."""
        return {"bytes": self.size, "xxh3_128": self._digest.hexdigest()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def files_below(folder: Path) -> list[Path]:
    """The files of a folder and of the folders in it, in the order of their names; none if it does not exist."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def record_of(folder: Path, files: Iterable[Path]) -> Record:
    """The record of these files by their names relative to `folder`."""
    return {file.relative_to(folder).as_posix(): facts_of(file) for file in files}


def changes(folder: Path, record: Record) -> Iterator[str]:
    """A line for each recorded file that is missing or has another content; files without a record do not count."""
    for name, expected in record.items():
        try:
            found = facts_of(folder / name)
        except FileNotFoundError:
            yield f"{name}: expected a file, found none"
        except OSError as error:
            yield f"{name}: cannot be read: {error.strerror}"
        else:
            if found != expected:
                said = (f"XXH3 {facts['xxh3_128'][:12]}… of {facts['bytes']} bytes" for facts in (expected, found))
                yield f"{name}: expected {', found '.join(said)}"


def write_record(folder: Path, written: Record | None = None) -> None:
    """Writes the record of all files of a folder into it, or the one that was made when they were written."""
    record = record_of(folder, files_below(folder)) if written is None else written
    with atomic_write(folder / RECORD) as tmp:
        tmp.write_text(json.dumps(record, indent=1), encoding="utf-8")


def changes_since_record(folder: Path) -> list[str]:
    """What differs from the record in a folder."""
    try:
        return list(changes(folder, as_record(parse_json((folder / RECORD).read_bytes()))))
    except OSError as error:
        return [f"{RECORD}: cannot be read: {error.strerror}"]
    except ValueError as error:
        return [f"{RECORD}: {error}"]


def as_record(value: Any) -> Record:
    """A value from JSON as a record; raises ValueError if it is none, or names a file outside its folder."""
    check_shape(value, dict[str, Facts])
    if not value:
        raise ValueError("expected the sizes and hashes of files, got none")
    for name in value:
        if "\0" in name or Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"expected the names of files in this folder, got {shown(name)}")
    return value  # type: ignore[no-any-return]
