"""The codes of documents' token vectors, on disk: those of a text are made when it is asked for first, and kept.

A folder has `codes.bin`, the codes of all texts one after the other, and `texts.bin`, a record of each text: a hash of
it, its vectors, and a hash of its codes. Both only grow. A text is known by its hash alone, so a document that changed
is another text. Codes are written before their record, and what has no record, as after a kill, is cut before the next
text is added. Codes that differ from their hash are made again.
"""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import xxhash

from rerank.data.arrays import map_bytes
from rerank.utils.files import refused_in_one_line
from rerank.utils.locks import locked
from rerank.utils.progress import progress

CODES, TEXTS = "codes.bin", "texts.bin"
WHAT = "token vectors"
RECORD = np.dtype([("text", "<u8", 2), ("vectors", "<i8"), ("codes", "<u8")])
TEXTS_AT_ONCE = 64
"""Texts that are encoded before they are written: what a kill loses."""

Encode = Callable[[str], np.ndarray]
"""A text -> the codes of its token vectors, (vectors, width) uint8, which depend on no other text."""


class TokenVectorStore:
    """The codes of texts, `width` bytes for a vector, in a folder that several processes may use."""

    def __init__(self, folder: Path, width: int) -> None:
        self.folder, self._width = folder, width
        self._records: dict[bytes, tuple[int, int, int]] = {}  # hash of a text -> its first row, its end, hash of codes
        self._read, self._end = 0, 0  # the records that were read, and where the rows of the last one end
        self._codes = np.zeros((0, width), np.uint8)
        self._known: dict[str, np.ndarray] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __getitem__(self, name: str) -> np.ndarray:
        """(vectors, width) uint8: the codes of a text that was added."""
        return self._known[name]

    def add(self, texts: Mapping[str, str], encode: Encode) -> None:
        """Takes texts, by their names, into the store; encodes those that the folder does not have.

        A text of white space alone has no vector. Raises UserError if the folder cannot be written to.
        """
        hashes = {name: xxhash.xxh3_128_digest(text.encode()) for name, text in texts.items() if text.strip()}
        self._known.update({name: self._codes[:0] for name in texts if name not in hashes})
        self._read_records()
        missing = [name for name, text in hashes.items() if not self._take(name, text)]
        left = iter(progress(missing, len(missing), "encoding tokens", show=len(missing) > TEXTS_AT_ONCE))
        while some := list(itertools.islice(left, TEXTS_AT_ONCE)):
            with locked(self.folder, WHAT), refused_in_one_line(f"{self.folder}: cannot be written"):
                self._read_records()  # what another process has added
                new = {hashes[name]: texts[name] for name in some if not self._take(name, hashes[name])}
                self._append({text_hash: encode(text) for text_hash, text in new.items()})
                self._read_records()
            for name in some:
                self._take(name, hashes[name])

    def _take(self, name: str, text: bytes) -> bool:
        """Whether the store has a text, whose codes are known by its name from now on."""
        if text not in self._records:
            return False
        first, end, expected = self._records[text]
        codes = self._codes[first:end]
        if xxhash.xxh3_64_intdigest(codes.tobytes()) != expected:
            return False
        self._known[name] = codes
        return True

    def _read_records(self) -> None:
        """Reads the records behind those that were read."""
        file, codes_file = self.folder / TEXTS, self.folder / CODES
        if not (file.exists() and codes_file.exists()):
            return
        count = file.stat().st_size // RECORD.itemsize
        if count == self._read:
            return
        new = np.fromfile(file, RECORD, count - self._read, offset=self._read * RECORD.itemsize)
        for text, vectors, codes in zip(new["text"], new["vectors"].tolist(), new["codes"].tolist(), strict=True):
            self._records[text.tobytes()] = self._end, self._end + vectors, codes
            self._end += vectors
        self._read = count
        rows = map_bytes(codes_file, np.uint8)
        self._codes = rows[: len(rows) // self._width * self._width].reshape(-1, self._width)

    def _append(self, codes_of: Mapping[bytes, np.ndarray]) -> None:
        """Writes texts, by their hashes, behind the last record; what an ended process left there is cut."""
        with (self.folder / CODES).open("ab") as file:
            file.truncate(self._end * self._width)
            for codes in codes_of.values():
                file.write(codes.tobytes())
        with (self.folder / TEXTS).open("ab") as file:
            file.truncate(self._read * RECORD.itemsize)
            for text, codes in codes_of.items():
                found = np.frombuffer(text, "<u8"), len(codes), xxhash.xxh3_64_intdigest(codes.tobytes())
                file.write(np.array([found], RECORD).tobytes())
