"""Imports of the packages that compute measures.

Their modules may be compiled when they are first imported, so a warning about their source must not become an error of
ours, and an error in their import must never look like an unknown measure.
"""

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rerank.utils.errors import UserError


@contextmanager
def quiet() -> Iterator[None]:
    """Ignores warnings, also under `-W error`; for a third party's import and nothing else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def import_package(name: str, install: str) -> Any:
    """Imports a package, whatever its import warns of; raises UserError with its own error and how to `install` it."""
    try:
        with quiet():
            return importlib.import_module(name)
    except Exception as error:
        raise UserError(
            f"{name} cannot be imported: {type(error).__name__}: {error}; expected a working installation: {install}"
        ) from error
