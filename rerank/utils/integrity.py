"""Sizes and hashes, kept beside files, tell whether a file is the one that was written, and where to go on writing.

The hash is XXH3, 128 bits: it finds damage and changes, at the speed of memory, and is no protection from forgery.
SHA-256 and BLAKE2 of the standard library take ten times as long. Files that take long to write are in a folder that
outlives a kill: the next process goes on where the last save was.
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Self, TypedDict

import msgspec
import xxhash

from rerank.utils.files import refused_in_one_line, remove, write_text
from rerank.utils.json_files import parse_json
from rerank.utils.progress import log

RECORD = "files.json"  # the record of the other files of a folder
STATE = "state.json"
SUFFIX = ".unfinished"  # of a folder with files that are not whole yet
SECONDS_BETWEEN_SAVES = 2.0  # the work that a kill loses


class Facts(TypedDict):
    """The size and the hash of a file."""

    bytes: int
    xxh3_128: str


Record = Annotated[dict[str, Facts], msgspec.Meta(min_length=1)]
"""The name of a file, relative to a folder -> its size and hash."""


def facts_of(file: Path) -> Facts:
    """The size and the hash of a file; raises OSError if it cannot be read."""
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, xxhash.xxh3_128)
        return Facts(bytes=content.tell(), xxh3_128=digest.hexdigest())


class RecordedFile:
    """A file that is written from front to back, and hashed meanwhile; a context that closes it.

    With `kept`, the size and the hash of what an earlier process wrote into it, it is cut there and goes on behind.
    Raises ValueError if the file does not begin with that, and OSError if it cannot be opened.
    """

    def __init__(self, path: Path, kept: Facts | None = None) -> None:
        self._file = path.open("r+b" if kept else "w+b")
        self._digest: Any = xxhash.xxh3_128()
        if kept:
            self._file.truncate(kept["bytes"])
            self._digest = hashlib.file_digest(self._file, xxhash.xxh3_128)
        if kept and self.facts() != kept:
            self._file.close()
            raise ValueError(f"{path.name}: has changed")

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._file.write(data)
        self._digest.update(data)

    def facts(self) -> Facts:
        """The size and the hash of what was written so far, which is then in the file."""
        self._file.flush()
        return Facts(bytes=self._file.tell(), xxh3_128=self._digest.hexdigest())

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
    write_text(folder / RECORD, json.dumps(record, indent=1))


def changes_since_record(folder: Path) -> list[str]:
    """What differs from the record in a folder."""
    try:
        return list(changes(folder, parse_json((folder / RECORD).read_bytes(), Record)))
    except OSError as error:
        return [f"{RECORD}: cannot be read: {error.strerror}"]
    except ValueError as error:
        return [f"{RECORD}: {error}"]


class State(TypedDict):
    """What is saved of an `Unfinished`."""

    work: str
    done: int
    files: Record
    facts: dict[str, Any]


class Unfinished:
    """Files that are written item by item: their writers by name, how many items they hold, and other JSON `facts`."""

    def __init__(self, folder: Path, work: str, files: dict[str, RecordedFile], state: State | None) -> None:
        self.folder, self.work, self.files = folder, work, files
        self.done = state["done"] if state else 0
        self.facts = dict(state["facts"]) if state else {}
        self._saved = time.monotonic()

    def finish_item(self, items: int = 1) -> None:
        """Counts items that the files hold now; every few seconds a kill from now on loses none of them."""
        self.done += items
        if time.monotonic() - self._saved >= SECONDS_BETWEEN_SAVES:
            self.save()

    def save(self) -> None:
        """Records how far the files are."""
        files = {name: file.facts() for name, file in self.files.items()}
        state = State(work=self.work, done=self.done, files=files, facts=self.facts)
        write_text(self.folder / STATE, json.dumps(state))
        self._saved = time.monotonic()


@contextlib.contextmanager
def resumable(target: Path, names: Sequence[str], work: str) -> Iterator[Unfinished]:
    """Files in the folder `unfinished_folder(target)`, which go on where another process was with the same work.

    `work` identifies what decides the files' content, byte for byte. Files of other work, and files that have changed
    since they were saved, are begun again. After the block all of the files are on disk, and saved as they are; the
    caller moves them to their place and removes the folder. If the block fails, it can be resumed from the last save.
    Only one process may be at work: the caller holds a lock. Raises UserError if the disk is full.
    """
    folder = unfinished_folder(target)
    try:
        with refused_in_one_line(f"{target}: cannot be written"), contextlib.ExitStack() as stack:
            unfinished = _open(folder, names, work, stack)
            if unfinished.done:
                log.info(f"{target}: goes on after the {unfinished.done:,} that an interrupted command has done")
            yield unfinished
            unfinished.save()
    except BaseException:
        if not (folder / STATE).exists():
            remove(folder)
        raise


def unfinished_folder(target: Path) -> Path:
    return target.with_name(target.name + SUFFIX)


def _open(folder: Path, names: Sequence[str], work: str, stack: contextlib.ExitStack) -> Unfinished:
    """The files, kept or begun, which the stack closes."""
    try:
        state: State = parse_json((folder / STATE).read_bytes(), State)
        if state["work"] == work:
            files = {name: stack.enter_context(RecordedFile(folder / name, state["files"][name])) for name in names}
            return Unfinished(folder, work, files, state)
    except (OSError, ValueError, KeyError) as error:
        if folder.exists():
            log.info(f"{folder}: cannot be resumed ({error}); begun again")
    remove(folder)
    folder.mkdir(parents=True)
    files = {name: stack.enter_context(RecordedFile(folder / name)) for name in names}
    return Unfinished(folder, work, files, None)
