"""Arrays in .npy files."""

import io
from pathlib import Path
from typing import Any

import numpy as np


def read_array(path: Path, kind: Any, dimensions: int) -> np.ndarray:
    """The array of a .npy file, of this type of numbers and with so many dimensions.

    Raises ValueError for a file that is none, and OSError for one that cannot be opened.
    """
    try:
        with path.open("rb") as file:  # numpy would leave the file open if it is damaged
            array = np.load(file, allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # the header is a Python literal, and a file may also be a damaged .npz
        raise ValueError(f"{path.name} is no array: {error or type(error).__name__}") from error
    if not isinstance(array, np.ndarray) or array.dtype != kind or array.ndim != dimensions:
        raise ValueError(f"{path.name}: expected numbers of the type {np.dtype(kind)} in {dimensions} dimensions")
    return array


def write_array(path: Path, array: np.ndarray) -> None:
    """Writes a .npy file.

    numpy.save and tofile leave the last bytes to the C library, and do not notice if a full disk refuses them.
    """
    content = io.BytesIO()
    np.save(content, array)
    path.write_bytes(content.getbuffer())
