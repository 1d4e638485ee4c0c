"""The codes of documents' token vectors: made when a text is first asked for, and kept in a store that grows.

A text is known by its hash alone, so a document that changed is another text. Codes that differ from their hash are
made again. If the folder cannot be written, new codes go to a temporary one, which is removed with this process.
"""

import functools
import itertools
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import xxhash

from rerank.data.store import ITEMS, Items, StoreWriter, map_items
from rerank.utils.files import refused_in_one_line
from rerank.utils.locks import locked
from rerank.utils.progress import progress

CODES = "codes"
COLUMNS = {CODES: np.uint8}
TEXTS_AT_ONCE = 64  # encoded before they are written: what a kill loses

Encode = Callable[[str], np.ndarray]
"""A text -> the codes of its token vectors, (vectors, width) uint8, which depend on no other text."""


class TokenVectorStore:
    """The codes of texts, `width` bytes for a vector, in a folder that several processes and threads may use."""

    def __init__(self, folder: Path, width: int) -> None:
        self.folder, self._width = folder, width
        self._hashes: dict[str, str] = {}  # name -> hash of the text, "" for one of white space alone
        self._kept = [_Kept(folder / CODES)]

    def __contains__(self, name: str) -> bool:
        return name in self._hashes

    def __getitem__(self, name: str) -> np.ndarray:
        """(vectors, width) uint8: the codes of a text that was added."""
        text = self._hashes[name]
        found = self._read(text) if text else None
        return (np.zeros(0, np.uint8) if found is None else found).reshape(-1, self._width)

    def add(self, texts: Mapping[str, str], encode: Encode) -> None:
        """Takes texts, by their names, into the store; encodes those that the folder does not have.

        A text of white space alone has no vector. Raises UserError if the folder cannot be read or written.
        """
        for kept in self._kept:
            kept.refresh()
        hashes = {
            name: xxhash.xxh3_128_hexdigest(text.encode()) if text.strip() else "" for name, text in texts.items()
        }
        missing = [name for name, text in hashes.items() if text and self._read(text) is None]
        left = iter(progress(missing, len(missing), "encoding tokens", show=len(missing) > TEXTS_AT_ONCE))
        while some := list(itertools.islice(left, TEXTS_AT_ONCE)):
            new = {hashes[name]: texts[name] for name in some}
            self._writable.write({text_hash: encode(text) for text_hash, text in new.items()})
        self._hashes |= hashes

    def _read(self, text: str) -> np.ndarray | None:
        """The codes of the text with this hash; None if the folder does not have them undamaged."""
        return next((codes for kept in self._kept if (codes := kept.read(text)) is not None), None)

    @functools.cached_property
    def _writable(self) -> "_Kept":
        """The folder's codes; if it cannot be written, those of a temporary folder."""
        (kept,) = self._kept
        places = (self.folder, kept.folder, kept.folder / ITEMS)
        if any(place.exists() and not os.access(place, os.W_OK) for place in places):
            temporary = tempfile.mkdtemp(prefix="rerank-")
            weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)
            kept = _Kept(Path(temporary) / CODES)
            self._kept.append(kept)
        return kept


class _Kept:
    """The codes in a folder, by the hash of their text; one thread at a time reads or writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.RLock()
        self._rows: dict[str, int] = {}
        self._seen = 0
        self.refresh()

    def refresh(self) -> None:
        """Sees what other processes have written."""
        with self._lock:
            self._items: Items = map_items(self.folder, COLUMNS)
            if len(self._items) < self._seen:  # someone has removed the folder, or what was damaged
                self._rows, self._seen = {}, 0
            self._rows.update((self._items.id_of(row), row) for row in range(self._seen, len(self._items)))
            self._seen = len(self._items)

    def read(self, text: str) -> np.ndarray | None:
        with self._lock:
            row = self._rows.get(text)
            return None if row is None or not self._items.is_whole(row) else self._items.array(CODES, row)

    def write(self, codes: Mapping[str, np.ndarray]) -> None:
        what = f"{self.folder}: cannot be written"
        with self._lock, locked(self.folder.parent, CODES), refused_in_one_line(what):
            self.refresh()
            with StoreWriter(self.folder, COLUMNS, check=False) as writer:
                for text, found in codes.items():
                    if self.read(text) is None:
                        writer.add(text, found)
        self.refresh()
