"""Arrays in files, memory-mapped: they are read on access, and their memory can be freed again."""

import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

ITEMS_AT_ONCE = 2**20
"""Items of an array that are read at once."""


def map_file(path: Path, kind: DTypeLike) -> np.ndarray:
    """The numbers of a file, memory-mapped, without an incomplete last one; empty if there is no file."""
    count = path.stat().st_size // np.dtype(kind).itemsize if path.exists() else 0
    if not count:  # an empty file cannot be mapped
        return np.zeros(0, kind)
    return np.asarray(np.memmap(path, kind, "r", shape=(count,)))


def release(array: np.ndarray | None) -> None:
    """Frees the memory of the pages that were read of a memory-mapped array; they are read again on access."""
    held: object = array
    while isinstance(held, np.ndarray | memoryview):
        held = held.base if isinstance(held, np.ndarray) else held.obj
    if isinstance(held, mmap.mmap):
        held.madvise(mmap.MADV_DONTNEED)


def slices_of(items: int) -> Iterator[slice]:
    """Slices for reading an array of any size in bounded memory."""
    return (slice(first, min(first + ITEMS_AT_ONCE, items)) for first in range(0, items, ITEMS_AT_ONCE))
