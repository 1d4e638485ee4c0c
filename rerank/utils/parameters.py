"""Types of settings: the conversion of a flag's text to a value, and the values that a setting takes.

cyclopts calls the validators for a flag, `rerank.config.validate` calls them for any value.
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from cyclopts import Parameter, Token


def _whole(expected: object, tokens: Sequence[Token]) -> int | str:
    """An integer, or a word that the type allows instead; cyclopts itself would round 2.5."""
    (token,) = tokens
    if token.value in (words := get_args(get_args(expected)[1]) if get_args(expected) else ()):
        return str(token.value)
    try:
        return int(token.value)
    except ValueError:
        or_word = "".join(f" or {word}" for word in words)
        raise ValueError(f"expected a whole number{or_word}, got {token.value}") from None


def _expand_text(expected: object, tokens: Sequence[Token]) -> str:
    if "\0" in tokens[0].value:
        raise ValueError("expected a name without NUL characters")
    return os.path.expanduser(str(tokens[0].value))  # noqa: PTH111 - a Path would drop a leading ./


def _expand_path(expected: object, tokens: Sequence[Token]) -> Path:
    return Path(_expand_text(expected, tokens))


def _break_lines(expected: object, tokens: Sequence[Token]) -> str:
    return str(tokens[0].value).replace("\\n", "\n")  # a shell keeps the backslash


def keyed(expected: object, tokens: Mapping[str, Sequence[Token]]) -> dict[str, str]:
    """Key -> text of flags such as --loss.KEY TEXT."""
    if any(isinstance(found, Mapping) for found in tokens.values()):
        raise ValueError("expected --loss.KEY, and one value")
    return {key.replace("-", "_"): found[-1].value for key, found in tokens.items()}


Whole = Annotated[int, Parameter(converter=_whole)]
Count = Annotated[int | Literal["all"], Parameter(converter=_whole, metavar="INT|all", show_choices=False)]
CountOrAuto = Annotated[int | Literal["auto"], Parameter(converter=_whole, metavar="INT|auto", show_choices=False)]
PathText = Annotated[str, Parameter(converter=_expand_text)]
"""A path, or a name that may be given instead of a path; a leading ~ is the home folder."""
TemplateText = Annotated[str, Parameter(converter=_break_lines)]
"""A text in which a backslash and an n are a line break."""
FilePath = Annotated[Path, Parameter(converter=_expand_path)]
OptionalPath = Annotated[Path | None, Parameter(converter=_expand_path)]

LARGEST_WHOLE = 2**31 - 1  # Java's and numpy's largest index


@dataclass(frozen=True)
class Bounds:
    """Raises ValueError for a number below `least` or above `most`, and for inf and nan; ignores words.

    Without `most`, the upper bound is LARGEST_WHOLE for an integer, and the largest float32 for a float.
    """

    least: float = -math.inf
    most: float = math.inf

    def __call__(self, type_: object, value: object) -> None:
        if not isinstance(value, int | float):
            return
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("expected a finite number")
        largest = LARGEST_WHOLE if isinstance(value, int) else 3.4028234e38  # the largest float32, rounded down
        if math.isinf(self.most) and value > largest:
            raise ValueError(f"expected {largest:.10g} at most")
        if not self.least <= value <= self.most:
            limit = "or more" if math.isinf(self.most) else f"to {self.most}"
            raise ValueError(f"expected {self.least} {limit}")


@dataclass(frozen=True)
class Pattern:
    """Raises ValueError for a text that does not match `pattern` or has over `longest` bytes; "" is valid."""

    pattern: str
    expected: str
    longest: int = 255

    def __call__(self, type_: object, value: object) -> None:
        text = str(value)
        if text and not re.fullmatch(self.pattern, text):
            raise ValueError(f"expected {self.expected}")
        if (length := len(text.encode(errors="replace"))) > self.longest:
            raise ValueError(f"expected {self.longest} bytes at most, got {length}")


def at_least(least: float) -> Parameter:
    """A finite number of `least` or more."""
    return Parameter(validator=Bounds(least))


def between(least: float, most: float) -> Parameter:
    """A number from `least` to `most`, both included."""
    return Parameter(validator=Bounds(least, most))


def validators(annotation: object) -> list[Bounds | Pattern]:
    """The validators of an annotated type, in order."""
    parameters = getattr(annotation, "__metadata__", ())  # cyclopts' Parameters, each with a tuple of validators
    return [validator for parameter in parameters for validator in parameter.validator]
