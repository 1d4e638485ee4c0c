"""The elements of report pages: tables, charts, and reasons why an element is missing."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rerank.utils.errors import UserError

Made = TypeVar("Made")

HERE = Path(__file__).parent


class Rows(NamedTuple):
    """A table: its head and its rows; the first cell of a row is its name."""

    head: Sequence[object]
    rows: Sequence[Sequence[object]]


class Missing(NamedTuple):
    """The reason why an element of the page is not available."""

    reason: str


class Figure(NamedTuple):
    """A chart: title, caption, and the SVG element, or the reason why it is missing."""

    title: str
    caption: str
    svg: str | Missing


def origin_rows(versions: Mapping[str, str | None], manifests: Sequence[Path]) -> list[tuple[str, str]]:
    """The rows of a table of settings that say with which versions and on which days `manifests` were written."""
    shown = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    days = {date.fromtimestamp(manifest.stat().st_mtime).isoformat() for manifest in manifests}
    rows = [("versions", shown), ("date", ", ".join(sorted(days)))]
    return [(name, value) for name, value in rows if value]


def or_missing(make: Callable[[], Made]) -> Made | Missing:
    """The result of `make()`, or the reason if it raises UserError."""
    try:
        return make()
    except UserError as error:
        return Missing(str(error))


def render_page(template: str, **variables: object) -> str:
    """Renders a template of this folder with these variables; everything but the charts is escaped."""
    templates = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    css = (HERE / "report.css").read_text(encoding="utf-8")
    return templates.get_template(template).render(css=css, **variables)
