"""A text file, gzipped or not, as blocks of whole lines, read in several processes and handed on in order."""

import gzip
import hashlib
import multiprocessing
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from rerank.errors import UserError
from rerank.letor.mistakes import LINE

Result = TypeVar("Result")

BLOCK = 4 * 2**20
"""Bytes of text that are read at once."""
FEW = 5
"""Blocks that are read sooner than processes start."""
LONGEST_LINE = 16 * 2**20
MOST_WORKERS = 8
"""Beyond it one process does not feed the others fast enough."""


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
    """The text in blocks of whole lines; raises UserError for a file that is damaged or has no lines."""
    stream: Any = gzip.GzipFile(fileobj=file, mode="rb") if path.suffix == ".gz" else file  # type: ignore[call-overload]
    begun = b""
    try:
        while block := stream.read(BLOCK):
            cut = block.rfind(b"\n") + 1
            if cut:
                yield begun + block[:cut]
                begun = block[cut:]
            else:
                begun += block
            if len(begun) > LONGEST_LINE:
                raise UserError(f"{path}: expected lines of `{LINE}`, got one of more than {LONGEST_LINE:,} bytes")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: damaged gzip file: {error}") from error
    if begun:
        yield begun


def in_order(work: Callable[..., Result], items: Iterable[Any], *arguments: object) -> Iterator[Result]:
    """`work(item, *arguments)` of each item, in order, done in a process for each processor; a few items are done here.

    `work` is a function of a module. No more than two items a process are in memory.
    """
    items = iter(items)
    first = list(islice(items, FEW))
    if len(first) < FEW:
        yield from (work(item, *arguments) for item in first)
        return
    workers = min(
        MOST_WORKERS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    waiting: deque[Future[Result]] = deque()
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        for item in first:
            waiting.append(pool.submit(work, item, *arguments))
        del first
        for item in items:
            waiting.append(pool.submit(work, item, *arguments))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
