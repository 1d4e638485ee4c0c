"""How torch multiplies float32 matrices: in float32, or with factors that are rounded to TF32 or bf16.

From torch 2.9 on each backend has a setting, and torch raises an error where a program sets the new name and reads the
old one. Earlier versions have one setting for all backends.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

Products = tuple[str, ...]
"""torch's settings, to be put back: one for each backend, or one for all before torch 2.9."""

BY_BACKEND = hasattr(torch.backends.cuda.matmul, "fp32_precision")
"""Whether this torch has a setting for each backend."""

_lock = threading.Lock()
_products: list[Products] = []
"""What each open block of `full_float32` found, of all threads; the first one found the caller's choice."""


def read_products() -> Products:
    """What is set now."""
    if not BY_BACKEND:
        return (torch.get_float32_matmul_precision(),)
    return tuple(backend.fp32_precision for backend in _backends())


def set_products(products: Products) -> None:
    """Sets what `read_products` has returned."""
    if not BY_BACKEND:
        torch.set_float32_matmul_precision(*products)
        return
    for backend, precision in zip(_backends(), products, strict=True):
        backend.fp32_precision = precision


def set_float32_products() -> None:
    """Makes each backend compute products of float32 matrices in float32."""
    set_products(("ieee", "ieee") if BY_BACKEND else ("highest",))


def set_tf32(on: bool) -> None:
    """Sets whether CUDA GPUs round the factors of float32 products to TF32."""
    if BY_BACKEND:
        torch.backends.cuda.matmul.fp32_precision = "tf32" if on else "ieee"
    else:
        torch.backends.cuda.matmul.allow_tf32 = on


def is_tf32() -> bool:
    """Whether CUDA GPUs round the factors of float32 products to TF32."""
    if BY_BACKEND:
        return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")
    return bool(torch.backends.cuda.matmul.allow_tf32)


@contextlib.contextmanager
def full_float32() -> Iterator[None]:
    """Within the block float32 products are computed in float32, not in TF32, whatever the caller has chosen.

    Blocks may overlap in any order, as torch has one choice for all threads; it returns when the last block ends.
    """
    with _lock:
        _products.append(read_products())
        set_float32_products()
    try:
        yield
    finally:
        with _lock:
            found = _products.pop()
            if not _products:
                set_products(found)


def _backends() -> list[Any]:
    """The parts of torch with a setting for matrix products, on CUDA GPUs and on CPUs."""
    return [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]  # type: ignore[attr-defined]
