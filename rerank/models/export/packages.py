"""The packages of the extra `cpu`, which only exported graphs need."""

import importlib

from rerank.utils.errors import UserError


def needed(package: str, what: str) -> None:
    """Raises UserError, which begins with `what`, if a package cannot be imported."""
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise UserError(
            f'{what}: needs the package {package}, which cannot be imported ({error}); pip install "ir-rerank[cpu]"'
        ) from error
