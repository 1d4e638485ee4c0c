"""The packages of the extras, which only some models need."""

import importlib

from rerank.utils.errors import UserError


def needed(package: str, what: str, extra: str = "cpu") -> None:
    """Raises UserError, which begins with `what`, if a package cannot be imported."""
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise UserError(
            f'{what}: needs the package {package}, which cannot be imported ({error}); pip install "ir-rerank[{extra}]"'
        ) from error
