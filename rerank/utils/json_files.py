"""Reads JSON of a known shape: any other input gives the same kind of error.

A shape is a type that msgspec knows, such as `list[str]`, `dict[str, float]`, a TypedDict, or a union of them.
"""

import codecs
import re
import reprlib
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import TypeVar, overload

import msgspec

from rerank.utils.errors import UserError
from rerank.utils.inside import read_regular

Shape = TypeVar("Shape")

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60

MOST_NESTED = 900  # nesting depth: once Java runs, deeper JSON overflows the stack of Python 3.13, which crashes
STRINGS_AND_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[][{}]', re.DOTALL)


def parse_json(text: bytes, shape: type[Shape]) -> Shape:
    """Parses a JSON text, and checks that the value has the shape.

    Raises ValueError with a one-line message for bytes that are not UTF-8, a text that is not JSON or is nested too
    deeply for Python, and a value of another shape.
    """
    if text.count(b"[") + text.count(b"{") > MOST_NESTED and _nesting(text) > MOST_NESTED:
        raise ValueError("not JSON that can be read (too many brackets in each other)")
    try:
        value: Shape = msgspec.json.decode(text.removeprefix(codecs.BOM_UTF8))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"not JSON ({error})") from None
    check_shape(value, shape)
    return value


def _nesting(text: bytes) -> int:
    """The largest nesting depth of brackets in a JSON text."""
    steps = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
    return max(accumulate(steps.get(found[0], 0) for found in STRINGS_AND_BRACKETS.finditer(text)), default=0)


def read_json(path: str | Path, shape: type[Shape], remedy: str) -> Shape:
    """The value of a JSON file of this shape; raises UserError, whose message ends with `remedy`, for any other."""
    try:
        return parse_json(read_regular(path), shape)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; {remedy}") from error
    except ValueError as error:
        raise UserError(f"{path}: {error}; {remedy}") from error


def read_json_lines(path: str | Path, shape: type[Shape], remedy: str) -> Iterator[Shape]:
    """Yields the value of each line, of this shape; raises UserError, whose message ends with `remedy`, for others."""
    number = 0
    try:
        for number, line in enumerate(read_regular(path).splitlines(), 1):  # noqa: B007
            yield parse_json(line, shape)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; {remedy}") from error
    except ValueError as error:
        raise UserError(f"{path}:{number}: {error}; {remedy}") from error


@overload
def check_shape(value: object, shape: type[Shape], place: str = "") -> Shape: ...
@overload
def check_shape(value: object, shape: object, place: str = "") -> object: ...
def check_shape(value: object, shape: object, place: str = "") -> object:
    """Converts a value read from JSON to a shape; raises ValueError with the place of the first difference.

    Objects may have keys that their TypedDict does not have, and a `float` may be written as an integer.

    >>> check_shape({"name": "1", "train": ["q1", 2]}, dict[str, str | list[str]])
    Traceback (most recent call last):
    ValueError: expected `str`, got `int` - at `$[...][1]`
    """
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise ValueError(f"{str(error)[0].lower()}{str(error)[1:]}{place}") from None


def read_numbers(path: str | Path, count: int, remedy: str) -> list[float]:
    """The numbers of a JSON file with a list of `count` numbers; raises UserError as `read_json` does."""
    found = read_json(path, list[float], remedy)
    if len(found) != count:
        raise UserError(f"{path}: expected {count} numbers, got {len(found)}; {remedy}")
    return found


def shown(value: object) -> str:
    """A short form of any value, for a message.

    >>> shown("a" * 1000)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaa...aaaaaaaaaaaaaaaaaaaaaaaaaaaa'"
    """
    return _SHORT.repr(value)
