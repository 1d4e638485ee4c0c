"""Files that take long to write, in a folder that outlives a kill: the next process goes on where the last save was."""

import contextlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

from rerank.utils.files import atomic_write, refused_in_one_line
from rerank.utils.integrity import Record, RecordedFile, as_record
from rerank.utils.json_files import parse_json
from rerank.utils.progress import log
from rerank.utils.temporary import remove

STATE = "state.json"
SUFFIX = ".unfinished"
"""Ends the name of a folder with files that are not whole yet."""
SECONDS_BETWEEN_SAVES = 2.0
"""The work that a kill loses."""


class State(TypedDict):
    """state.json: what the files are made of, the items that they hold, their sizes and hashes, and other counts."""

    work: str
    done: int
    files: dict[str, Any]
    facts: dict[str, Any]


class Unfinished:
    """Files that are written from front to back, item by item; `files` are their writers by name.

    `done` is the number of items that they hold, and `facts` what else is to be known of these items, as JSON.
    """

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
        """Records how far the files are. Raises UserError if the disk is full."""
        for file in self.files.values():
            file.flush()
        state = State(work=self.work, done=self.done, files=self.record(), facts=self.facts)
        with atomic_write(self.folder / STATE) as tmp:
            tmp.write_text(json.dumps(state), encoding="utf-8")
        self._saved = time.monotonic()

    def record(self) -> Record:
        """The sizes and hashes of the files as they are now."""
        return {name: file.facts() for name, file in self.files.items()}


@contextlib.contextmanager
def resumable(target: Path, names: Sequence[str], work: str) -> Iterator[Unfinished]:
    """Files in the folder `unfinished_folder(target)`, which go on where another process was with the same work.

    `work` identifies what decides the files' content, byte for byte. Files of other work, and files that have changed
    since they were saved, are begun again. After the block all of the files are on disk, and saved as they are; the
    caller moves them to their place and removes the folder. If the block fails, it can be resumed from the last save.
    Only one process may be at work: the caller holds a lock. Raises UserError if the disk is full.
    """
    folder = unfinished_folder(target)
    saved = folder / STATE
    try:
        with refused_in_one_line(f"{target}: cannot be written"), contextlib.ExitStack() as stack:
            unfinished = _open(folder, names, work, stack)
            if unfinished.done:
                log.info(f"{target}: goes on after the {unfinished.done:,} that an interrupted command has done")
            yield unfinished
            unfinished.save()
    except BaseException:
        if not saved.exists():
            remove(folder)
        raise


def unfinished_folder(target: Path) -> Path:
    """The folder of the files that become `target`."""
    return target.with_name(target.name + SUFFIX)


def put_in_place(folder: Path, target: Path) -> None:
    """Makes a folder of finished files the folder `target`, which must not exist, without what was for resuming."""
    os.replace(folder, target)
    (target / STATE).unlink()


def _open(folder: Path, names: Sequence[str], work: str, stack: contextlib.ExitStack) -> Unfinished:
    """The files, kept or begun, which the stack closes."""
    try:
        state: State = parse_json((folder / STATE).read_bytes(), State)
        if state["work"] == work:
            kept = as_record(state["files"])
            with contextlib.ExitStack() as opened:
                files = {name: opened.enter_context(RecordedFile(folder / name, kept[name])) for name in names}
                stack.push(opened.pop_all())
            return Unfinished(folder, work, files, state)
    except (OSError, ValueError, KeyError) as error:
        if folder.exists():
            log.info(f"{folder}: cannot be resumed ({error}); begun again")
    remove(folder)
    folder.mkdir(parents=True)
    files = {name: stack.enter_context(RecordedFile(folder / name)) for name in names}
    return Unfinished(folder, work, files, None)
