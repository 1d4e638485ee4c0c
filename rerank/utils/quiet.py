"""Turns other libraries' messages down for the length of a call; handlers stay as the application has set them."""

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def quiet(*loggers: str, level: int = logging.ERROR) -> Iterator[None]:
    """Within the block these loggers pass nothing below the level, or below their own if it is higher."""
    before = {name: logging.getLogger(name).level for name in loggers}
    for name, own in before.items():
        logging.getLogger(name).setLevel(max(own, level))
    try:
        yield
    finally:
        for name, own in before.items():
            logging.getLogger(name).setLevel(own)
