"""Settings of the allocators of torch and of the C library, unless the user has chosen them."""

import ctypes
import os
import sys

ALLOCATOR_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
"""The variables that torch reads the settings of its allocator from; the first is the name since torch 2.9."""

MALLOC_SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
"""The variables that the C library reads the settings of its allocator from."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # the names of two settings in the C library's malloc.h


def prefer_expandable_segments() -> None:
    """Lets torch's CUDA allocator grow its segments, unless the user has chosen its settings; before CUDA is used.

    Micro-batches differ in size: blocks of fixed segments that no later one fits into are lost.
    """
    if sys.platform == "linux" and not any(os.environ.get(name) for name in ALLOCATOR_SETTINGS):
        os.environ[ALLOCATOR_SETTINGS[0]] = "expandable_segments:True"


def keep_freed_memory() -> None:
    """Lets the process keep up to 512 MB of what it frees, unless the user has chosen the C library's settings.

    By default the tensors of each forward pass are given back to Linux, which clears them page by page for the next.
    """
    set_malloc = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if set_malloc is not None and not any(os.environ.get(name) for name in MALLOC_SETTINGS):
        set_malloc(M_MMAP_THRESHOLD, 2**26)
        set_malloc(M_TRIM_THRESHOLD, 2**29)
