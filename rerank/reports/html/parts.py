"""What the template draws by itself: tables, and lines that say why a part of the page is missing."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rerank.utils.errors import UserError


class Rows(NamedTuple):
    """A table: the head, the rows, whose first cells are their names, and a note above.

    A cell is text, a number, or `Noted`.
    """

    head: Sequence[object]
    rows: Sequence[Sequence[object]]
    note: str = ""


class Noted(NamedTuple):
    """A cell with small text after it."""

    text: str
    small: str


class Missing(NamedTuple):
    """Why a part of the page is not available."""

    reason: str


def or_missing(make: Callable[..., Any], *arguments: object) -> Any:
    """What `make` returns, or the reason of its UserError."""
    try:
        return make(*arguments)
    except UserError as error:
        return Missing(str(error))


def percent(share: float) -> str:
    """Such as 12.3 %; a dash for NaN."""
    return "–" if share != share else f"{100 * share:.1f} %"
