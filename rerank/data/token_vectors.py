"""The store of the codes of token vectors: a text is encoded on its first use, and the store grows.

The key of a text is its hash, so a changed document is a new text. Codes that do not match their hash are computed
again. If the folder is read-only, new codes go to a temporary overlay, which is removed when this process ends.
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
TEXTS_AT_ONCE = 64  # texts that are encoded between two writes, which a kill loses

Encode = Callable[[str], np.ndarray]
"""Maps a text to the codes of its token vectors, (vectors, width) uint8, independently of other texts."""


class TokenVectorStore:
    """The codes of texts, `width` bytes per vector, in a folder that several processes and threads may use.

    New codes are `written` to the folder, or to another one if it is only read.
    """

    def __init__(self, folder: Path, width: int, written: Path | None = None) -> None:
        self.folder, self._width = folder, width
        self._hashes: dict[str, str] = {}  # name -> hash of the text, "" for a text of only white space
        self._kept = [_Kept(place / CODES) for place in dict.fromkeys([folder, written or folder])]

    def __contains__(self, name: str) -> bool:
        return name in self._hashes

    def __getitem__(self, name: str) -> np.ndarray:
        """(vectors, width) uint8: the codes of a text that was added."""
        text = self._hashes[name]
        found = self._read(text) if text else None
        return (np.zeros(0, np.uint8) if found is None else found).reshape(-1, self._width)

    def add(self, texts: Mapping[str, str], encode: Encode) -> None:
        """Adds texts, name -> text; encodes the texts that the folder does not have.

        A text of only white space has no vector. Raises UserError if the folder cannot be read or written.
        """
        for kept in self._kept:
            kept.refresh()
        hashes = {
            name: xxhash.xxh3_128_hexdigest(text.encode()) if text.strip() else "" for name, text in texts.items()
        }
        missing = [name for name, text in hashes.items() if text and self._read(text) is None]
        left = iter(progress(missing, len(missing), "encoding tokens", show=len(missing) > TEXTS_AT_ONCE))
        while names := list(itertools.islice(left, TEXTS_AT_ONCE)):
            new = {hashes[name]: texts[name] for name in names}
            self._writable.write({text_hash: encode(text) for text_hash, text in new.items()})
        self._hashes |= hashes

    def _read(self, text_hash: str) -> np.ndarray | None:
        """The codes of the text with this hash; None if they are missing or damaged."""
        return next((codes for kept in self._kept if (codes := kept.read(text_hash)) is not None), None)

    @functools.cached_property
    def _writable(self) -> "_Kept":
        """The codes of the folder that is written, or of a temporary overlay if that cannot be written."""
        kept = self._kept[-1]
        places = (kept.folder.parent, kept.folder, kept.folder / ITEMS)
        if any(place.exists() and not os.access(place, os.W_OK) for place in places):
            temporary = tempfile.mkdtemp(prefix="rerank-")
            weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)
            kept = _Kept(Path(temporary) / CODES)
            self._kept.append(kept)
        return kept


class _Kept:
    """Hash of a text -> codes, in a folder; one thread at a time reads or writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.RLock()
        self._rows: dict[str, int] = {}
        self._seen = 0
        self.refresh()

    def refresh(self) -> None:
        """Reads the items that other processes have written since the last call."""
        with self._lock:
            self._items: Items = map_items(self.folder, COLUMNS)
            if len(self._items) < self._seen:  # another process has removed the folder or damaged items
                self._rows, self._seen = {}, 0
            self._rows.update((self._items.id_of(row), row) for row in range(self._seen, len(self._items)))
            self._seen = len(self._items)

    def read(self, text_hash: str) -> np.ndarray | None:
        with self._lock:
            row = self._rows.get(text_hash)
            return None if row is None or not self._items.is_whole(row) else self._items.array(CODES, row)

    def write(self, codes: Mapping[str, np.ndarray]) -> None:
        what = f"{self.folder}: cannot be written"
        with self._lock, locked(self.folder.parent, CODES), refused_in_one_line(what):
            self.refresh()
            with StoreWriter(self.folder, COLUMNS, check=False) as writer:
                for text_hash, found in codes.items():
                    if self.read(text_hash) is None:
                        writer.add(text_hash, found)
        self.refresh()
