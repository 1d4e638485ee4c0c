"""Arguments of several commands: measures that are checked before any work, and where a command has written."""

import os
from pathlib import Path

from rerank.evaluation.measures import measure_names
from rerank.utils.errors import UserError
from rerank.utils.files import STANDARD_OUTPUT, output_target


def check_measure(flag: str, measure: str) -> None:
    """Raises UserError for an unknown measure."""
    try:
        measure_names([measure])
    except UserError as error:
        raise UserError(f"{flag} {measure}: {error}") from error


def print_output(path: Path) -> None:
    """Prints where a command has written, unless that is standard output."""
    if output_target(path) != STANDARD_OUTPUT:
        print(os.fsencode(path).decode(errors="backslashreplace"))  # a name need not be UTF-8
