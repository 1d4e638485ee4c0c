"""Arrays in files, read whole or memory-mapped."""

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rerank.utils.integrity import RecordedFile

ITEMS_AT_ONCE = 2**20


def read_array(path: Path, kind: Any, dimensions: int) -> np.ndarray:
    """The array of a .npy file, of this type of numbers and with so many dimensions.

    Raises ValueError for a file that is none, and OSError for one that cannot be opened.
    """

    def load() -> Any:
        with path.open("rb") as file:  # numpy would leave the file open if it is damaged
            return np.load(file, allow_pickle=False)

    return _expect(_loaded(load, path), path, (kind,), dimensions)


def map_array(path: Path, kinds: tuple[Any, ...], dimensions: int) -> np.ndarray:
    """As `read_array`, memory-mapped and of one of these types of numbers."""
    array = _loaded(lambda: np.lib.format.open_memmap(path, mode="r"), path)
    return _expect(np.asarray(array), path, kinds, dimensions)


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
    """Lets go of the memory that holds what was read of a memory-mapped array; it is read again when it is needed."""
    held: Any = array
    while isinstance(held, np.ndarray | memoryview):
        held = held.base if isinstance(held, np.ndarray) else held.obj
    if isinstance(held, mmap.mmap):
        held.madvise(mmap.MADV_DONTNEED)


def slices_of(items: int) -> Iterator[slice]:
    """Slices of ITEMS_AT_ONCE items, so that an array of any size is read in bounded memory."""
    return (slice(first, min(first + ITEMS_AT_ONCE, items)) for first in range(0, items, ITEMS_AT_ONCE))


def _loaded(load: Callable[[], Any], path: Path) -> Any:
    try:
        return load()
    except OSError:
        raise
    except Exception as error:  # the header is a Python literal, and a file may also be a damaged .npz
        raise ValueError(f"{path.name} is no array: {error or type(error).__name__}") from error


def _expect(array: Any, path: Path, kinds: tuple[Any, ...], dimensions: int) -> np.ndarray:
    if not isinstance(array, np.ndarray) or array.dtype not in kinds or array.ndim != dimensions:
        expected = " or ".join(str(np.dtype(kind)) for kind in kinds)
        raise ValueError(f"{path.name}: expected numbers of the type {expected} in {dimensions} dimensions")
    return array
