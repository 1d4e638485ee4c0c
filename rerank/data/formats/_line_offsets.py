"""Where the line of each document begins in a file of documents: in memory, or on disk for a large file."""

import functools
import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from rerank.data.ragged import Ragged, RaggedWriter, RepeatedIdError, open_ragged, release
from rerank.utils.errors import UserError
from rerank.utils.files import short_hash, user_cache
from rerank.utils.temporary import remove

LARGE = 2**26
"""Bytes of a file whose offsets are kept on disk: at least a second is needed to find them."""
OFFSETS_AT_ONCE = 2**16
"""Offsets that are looked up before the memory of what was read of the store is freed."""

Lines = Callable[[], Iterator[tuple[str, int, str]]]
"""Gives of each document of the file the place as file:line, the first byte of the line, and the id."""

Find = Callable[[Sequence[str]], Sequence[int]]
"""Gives the first bytes of the lines of documents; raises KeyError for a document that the file does not have."""


def line_offsets(path: Path, keys: Iterable[str], lines: Lines) -> Find:
    """Finds the lines of documents; `keys` is what decides the ids beside the file.

    The offsets of a large file are in the folder `offsets` of the user's cache until the file changes. Raises UserError
    for an id that occurs twice, for a store that is damaged, and for a cache that cannot be written.
    """
    if path.stat().st_size >= LARGE:
        store = _open_store(user_cache("offsets"), path, short_hash(path.resolve(), *keys), lines)
        return functools.partial(_find, store)
    table: dict[str, int] = {}
    for place, offset, doc_id in lines():
        if doc_id in table:
            raise _repeated(place, doc_id)
        table[doc_id] = offset
    return lambda doc_ids: array("q", map(table.__getitem__, doc_ids))


def _repeated(place: str, doc_id: str) -> UserError:
    return UserError(f"{place}: the document {doc_id} occurs a second time; expected each id once")


def _open_store(cache: Path, path: Path, name: str, lines: Lines) -> Ragged:
    """The store of documents without values, whose numbers are the offsets."""
    status = path.stat()
    folder = cache / f"{name}-{short_hash(status.st_size, status.st_mtime_ns)}"

    def fill(writer: RaggedWriter) -> None:
        for _, offset, doc_id in itertools.islice(lines(), writer.done, None):
            writer.add(doc_id, (), offset)
            writer.finish()

    is_new = not folder.exists()
    try:
        store = open_ragged(folder, "offsets", np.int64, fill)
    except RepeatedIdError as error:
        place, _, doc_id = next(itertools.islice(lines(), error.row, None))
        raise _repeated(place, doc_id) from None
    if is_new:
        for before in cache.glob(f"{name}-*"):  # of the same file before it changed
            if before != folder:
                remove(before)
    return store


def _find(store: Ragged, doc_ids: Sequence[str]) -> Sequence[int]:
    found = array("q")
    for first in range(0, len(doc_ids), OFFSETS_AT_ONCE):
        rows = [store.ids[doc_id] for doc_id in doc_ids[first : first + OFFSETS_AT_ONCE]]
        found.extend(store.numbers[rows].tolist())
        store.ids.release()
        release(store.numbers)
    return found
