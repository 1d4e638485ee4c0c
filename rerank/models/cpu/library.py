"""Compiles the C sources of this folder for the processor at hand, once, and calls their functions."""

import ctypes
import functools
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rerank.models.processor import processor
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, short_hash, user_cache

FOLDER = Path(__file__).parent
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-shared", "-fPIC")
DEFINES = {torch.float32: (), torch.bfloat16: ("-DBF16",)}
"""The types of numbers that the sources are compiled for."""


def call(source: str, dtype: torch.dtype, function: str, *arguments: Any) -> int:
    """Calls a C function of a source, compiled for a type of number, with all threads of torch.

    It gets tensors as addresses, int as long, float as float, and last the number of threads.
    """
    given = (*arguments, torch.get_num_threads())
    called = getattr(load(source, dtype), function)
    called.restype = ctypes.c_long
    result: int = called(*map(_for_c, given))
    return result


def _for_c(value: Any) -> Any:
    if isinstance(value, Tensor):
        return ctypes.c_void_p(value.data_ptr())
    return ctypes.c_float(value) if isinstance(value, float) else ctypes.c_long(value)


@functools.cache
def load(source: str, dtype: torch.dtype) -> ctypes.CDLL:
    """The library of a source. Raises as `library_of`, and OSError if it cannot be loaded."""
    return ctypes.CDLL(str(library_of(source, dtype)))


def library_of(source: str, dtype: torch.dtype) -> Path:
    """The file of a source's library, which is compiled into the user's cache if it is not there.

    Raises UserError if there is no compiler, if it cannot compile, or if the cache cannot be written.
    """
    texts, flags = [file.read_bytes() for file in sorted(FOLDER.glob("*.[ch]"))], [*FLAGS, *DEFINES[dtype]]
    place = user_cache("kernels") / f"{source}-{short_hash(texts, flags, processor())}.so"
    if not place.is_file():
        compiler = shlex.split(os.environ.get("CC") or "cc")
        if not shutil.which(compiler[0]):
            raise UserError(f"there is no C compiler {compiler[0]}; install one, such as gcc")
        with atomic_write(place) as out:
            command = [*compiler, *flags, str(FOLDER / f"{source}.c"), "-o", str(out), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace")
            if done.returncode:
                raise UserError(f"{compiler[0]} cannot compile it: {' '.join(done.stderr.split())[:200]}")
    return place
