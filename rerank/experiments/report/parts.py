"""What the templates of pages show: tables, charts, and lines that say why a part of a page is missing."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rerank.utils.errors import UserError

HERE = Path(__file__).parent


class Rows(NamedTuple):
    """A table: the head, and the rows, whose first cells are their names."""

    head: Sequence[object]
    rows: Sequence[Sequence[object]]


class Missing(NamedTuple):
    """Why a part of the page is not available."""

    reason: str


class Figure(NamedTuple):
    """A chart: title, caption, and the SVG element or why it is missing."""

    title: str
    caption: str
    svg: str | Missing


def or_missing(make: Callable[..., Any], *arguments: object) -> Any:
    """What `make` returns, or the reason of its UserError."""
    try:
        return make(*arguments)
    except UserError as error:
        return Missing(str(error))


def render_page(template: str, **parts: Any) -> str:
    """The page that a template of this folder makes of these parts; it escapes what it shows, but for the charts."""
    templates = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    css = (HERE / "report.css").read_text(encoding="utf-8")
    return templates.get_template(template).render(css=css, **parts)
