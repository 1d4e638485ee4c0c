"""Records of file sizes and hashes, which show whether a file has changed since it was written.

The hash is XXH3, 128 bits. It finds damage and changes at the speed of memory; it does not protect from forgery.
SHA-256 and BLAKE2 of the standard library take ten times as long.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, TypedDict

import msgspec
import xxhash

from rerank.utils.errors import UserError
from rerank.utils.files import write_text
from rerank.utils.inside import inside, open_regular, read_regular
from rerank.utils.json_files import parse_json

RECORD = "files.json"  # the record of the other files of a folder
SUFFIX = ".unfinished"


class Facts(TypedDict):
    """The size and the hash of a file."""

    bytes: int
    xxh3_128: str


Record = Annotated[dict[str, Facts], msgspec.Meta(min_length=1)]
"""The name of a file, relative to a folder -> its size and hash."""


def facts_of(file: Path) -> Facts:
    """The size and the hash of a regular file; raises OSError if it cannot be read."""
    with open_regular(file) as content:
        digest = hashlib.file_digest(content, xxhash.xxh3_128)
        return Facts(bytes=content.tell(), xxh3_128=digest.hexdigest())


def files_below(folder: Path) -> list[Path]:
    """All files below a folder, sorted by path; none if the folder does not exist."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def record_of(folder: Path, files: Iterable[Path]) -> Record:
    """The record of the files, by their names relative to `folder`."""
    return {file.relative_to(folder).as_posix(): facts_of(file) for file in files}


def changes(folder: Path, record: Record) -> Iterator[str]:
    """Yields a line for each recorded file that is missing, changed or outside the folder; other files are ignored."""
    for name, expected in record.items():
        try:
            found = facts_of(inside(folder, name))
        except UserError as error:
            yield str(error).removeprefix(f"{folder}/")
        except FileNotFoundError:
            yield f"{name}: expected a file, found none"
        except OSError as error:
            yield f"{name}: cannot be read: {error.strerror}"
        else:
            if found != expected:
                said = (f"XXH3 {facts['xxh3_128'][:12]}… of {facts['bytes']} bytes" for facts in (expected, found))
                yield f"{name}: expected {', found '.join(said)}"


def write_record(folder: Path) -> None:
    """Writes the record of all files of a folder into it."""
    write_text(folder / RECORD, json.dumps(record_of(folder, files_below(folder)), indent=1))


def changes_since_record(folder: Path) -> list[str]:
    """The lines of `changes` for a folder and its record."""
    try:
        return list(changes(folder, parse_json(read_regular(inside(folder, RECORD)), Record)))
    except UserError as error:
        return [str(error).removeprefix(f"{folder}/")]
    except OSError as error:
        return [f"{RECORD}: cannot be read: {error.strerror}"]
    except ValueError as error:
        return [f"{RECORD}: {error}"]


def unfinished_folder(target: Path) -> Path:
    """The folder of the unfinished files, from which an interrupted command resumes.

    Raises UserError for a link that leads out of the target's folder.
    """
    return inside(target.parent, target.name + SUFFIX)
