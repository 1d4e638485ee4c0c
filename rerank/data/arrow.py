"""Reads columns of text into Arrow arrays, and converts these to numpy and back without pandas, which takes 35 MB."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import pyarrow as pa
from pyarrow import csv

AT_ONCE = 4096  # texts that are converted to Python at once

BLANKS = bytes.maketrans(b"\t\r\v\f", b"    ")  # translates other white space to spaces


def read_columns(text: bytes, delimiter: str, names: Sequence[str], types: Mapping[str, pa.DataType]) -> pa.Table:
    """Reads the columns in `types` from lines with the columns `names`; raises pa.ArrowInvalid for an invalid line."""
    return csv.read_csv(
        pa.py_buffer(text),
        csv.ReadOptions(use_threads=False, column_names=names, block_size=len(text) + 1),
        csv.ParseOptions(delimiter=delimiter, quote_char=False, double_quote=False, ignore_empty_lines=False),
        csv.ConvertOptions(column_types=types, include_columns=list(types), null_values=[]),
    )


def from_numpy(numbers: np.ndarray) -> pa.Array:
    """The numbers as an Arrow array, not copied."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(numbers))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), buffers)


def to_numpy(column: pa.ChunkedArray) -> np.ndarray:
    """A copy of the numbers of a column, or of the int32 codes of a dictionary-encoded one."""
    chunks = [chunk.indices if isinstance(chunk, pa.DictionaryArray) else chunk for chunk in column.chunks]
    return np.concatenate([np.from_dlpack(chunk) for chunk in chunks]) if chunks else np.zeros(0, np.int32)


@dataclass(frozen=True)
class Texts(Sequence[str]):
    """The texts of an Arrow array, each created on access: a list would take 60 bytes or more per text."""

    array: pa.Array

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> "Texts": ...
    def __getitem__(self, place: int | slice) -> "str | Texts":
        return Texts(self.array[place]) if isinstance(place, slice) else str(self.array[place])

    def __iter__(self) -> Iterator[str]:
        for begin in range(0, len(self), AT_ONCE):
            yield from self.array[begin : begin + AT_ONCE].to_pylist()

    def __len__(self) -> int:
        return len(self.array)
