"""Files with a JSON object on each line, gzipped or not."""

import codecs
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rerank.data.text_lines import LONGEST_TEXT, lines_of, open_text
from rerank.utils.errors import UserError
from rerank.utils.json_files import parse_json, shown

BLOCK = 2**20


def read_objects(path: str | Path, expected: str, begin: int = 0) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yields the place of each line as file:line, the byte at which it begins, and its object.

    `begin` is the byte of the line to begin with. Raises UserError for a file that is missing or damaged, and with file
    and line for a line that is no object, or too long; `expected` is what a line should hold.
    """
    for place, offset, line in read_filled_lines(path, expected, LONGEST_TEXT, begin):
        yield place, offset, parse_object(line, place, expected)


def read_filled_lines(
    path: str | Path, expected: str, longest: int, begin: int = 0
) -> Iterator[tuple[str, int, bytes]]:
    """As `read_objects`, with the bytes of each line that is not empty, without a BOM."""
    offset, number = begin, line_number(path, begin)
    with open_text(path, expected) as file:
        if begin:  # a pipe cannot seek
            file.seek(begin)
        for place, line in enumerate(lines_of(file, path, expected, longest), number):
            content = line if offset else line.removeprefix(codecs.BOM_UTF8)
            if content.strip():
                yield f"{path}:{place}", offset, content
            offset += len(line)


def parse_object(line: bytes, place: str, expected: str) -> dict[str, Any]:
    """The object of a line; raises UserError, which begins with `place`, if it is none."""
    try:
        record = parse_json(line)
    except ValueError as error:
        raise UserError(f"{place}: {error}; expected {expected}") from None
    if not isinstance(record, dict):
        raise UserError(f"{place}: expected {expected}, got {shown(record)}")
    return record


def text_under(record: dict[str, Any], keys: Sequence[str], place: str) -> str:
    """The text under the first of these keys that the object has; raises UserError if there is none."""
    key = next(filter(record.__contains__, keys), None)
    value = None if key is None else record[key]
    if not isinstance(value, str):
        got = f"none (the keys are {shown(list(record))})" if key is None else shown(value)
        raise UserError(f"{place}: expected a text under {' or '.join(map(repr, keys))}, got {got}")
    return value


def line_number(path: str | Path, offset: int) -> int:
    """The number of the line that begins at this byte."""
    number = 1
    if offset:
        with Path(path).open("rb") as file:
            while block := file.read(min(offset, BLOCK)):
                number += block.count(b"\n")
                offset -= len(block)
    return number
