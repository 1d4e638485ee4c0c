"""Pieces of a page: whatever is not Html already is escaped, so that no text of a collection can become markup."""

import html
from collections.abc import Iterable, Sequence


class Html(str):
    """Text that is markup."""


def escaped(content: object) -> Html:
    """Markup that shows the content.

    >>> escaped("a < b"), escaped(Html("<b>b</b>"))
    ('a &lt; b', '<b>b</b>')
    """
    return content if isinstance(content, Html) else Html(html.escape(str(content)))


def join(parts: Iterable[object], between: str = "") -> Html:
    """The parts one after the other."""
    return Html(escaped(between).join(escaped(part) for part in parts))


def tag(name: str, *content: object, **attributes: str) -> Html:
    """An element; `class_` is written class.

    >>> tag("p", "1 < 2", class_="small")
    '<p class="small">1 &lt; 2</p>'
    """
    written = "".join(f' {key.rstrip("_")}="{html.escape(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{written}>{join(content)}</{name}>")


def section(anchor: str, title: str, *content: object) -> Html:
    """A part of the page with its heading."""
    return tag("section", tag("h2", title), *content, id=anchor)


def details(summary: object, *content: object) -> Html:
    """A part that opens when it is asked for."""
    return tag("details", tag("summary", summary), *content)


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> Html:
    """A table whose first column names the rows; it scrolls by itself where it is wider than the page."""
    top = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    return tag("div", tag("table", tag("thead", top), tag("tbody", *body)), class_="scroll", tabindex="0")


def missing(reason: object) -> Html:
    """The line that stands in place of what is not there."""
    return tag("p", "Not available: ", reason, class_="missing")


def percent(share: float) -> str:
    """Such as 12.3 %; a dash for NaN."""
    return "–" if share != share else f"{100 * share:.1f} %"
