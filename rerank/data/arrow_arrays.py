"""Arrays of numpy and pyarrow as each other, without a copy; pyarrow's own ways import pandas, which takes 35 MB."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def to_numpy(array: pa.Array, kind: Any) -> np.ndarray:
    """The numbers of an array without nulls; they are of this type."""
    if not len(array):
        return np.zeros(0, kind)
    return np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array)]


def from_numpy(numbers: np.ndarray) -> pa.Array:
    """The array of these numbers."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(numbers))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), buffers)


def from_texts(texts: Sequence[str], kind: pa.DataType) -> pa.Array:
    """The array of these texts: pa.large_string(), or pa.binary() of their UTF-8."""
    encoded = [text.encode() for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int32 if kind == pa.binary() else np.int64)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    return pa.Array.from_buffers(kind, len(encoded), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))])
