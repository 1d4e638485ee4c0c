"""Arrays in files, memory-mapped."""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rerank.utils.integrity import RecordedFile

ITEMS_AT_ONCE = 2**20


def map_bytes(path: Path, kind: Any) -> np.ndarray:
    """The numbers of a file without a header, memory-mapped.

    Raises ValueError for a file that ends inside a number, and OSError for one that cannot be opened.
    """
    if not path.stat().st_size:  # nothing can be mapped of an empty file
        return np.zeros(0, kind)
    return np.asarray(np.memmap(path, dtype=kind, mode="r"))


def write_array(path: Path, array: np.ndarray) -> dict[str, Any]:
    """Writes a .npy file, a part at a time, and returns its size and hash.

    numpy.save and tofile leave the last bytes of a file to the C library, and do not notice if a full disk refuses
    them.
    """
    with RecordedFile(path) as file:
        np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
    return file.facts()


def release(array: np.ndarray | None) -> None:
    """Frees the memory of what was read of a memory-mapped array; it is read again when it is needed."""
    held: Any = array
    while isinstance(held, np.ndarray | memoryview):
        held = held.base if isinstance(held, np.ndarray) else held.obj
    if isinstance(held, mmap.mmap):
        held.madvise(mmap.MADV_DONTNEED)


def slices_of(items: int) -> Iterator[slice]:
    """Slices of ITEMS_AT_ONCE items, so that an array of any size is read in bounded memory."""
    return (slice(first, min(first + ITEMS_AT_ONCE, items)) for first in range(0, items, ITEMS_AT_ONCE))
