"""The style of charts; writes a chart as a file or as part of a page."""

import html
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write

SERIES = ("#2f6fb2", "#d1711f", "#2e8b57", "#8a5bb5", "#c2456b", "#1f8f9c", "#8c6d31", "#5b6abf")
"""The colours of lines and bars, in their order."""

INK = "#22252b"
"""The colour of text."""

QUIET = "#7b818b"
"""The colour of references."""

RULE = "#d9dce1"
"""The colour of grids and frames."""

CSS_NAMES = {INK: "ink", QUIET: "quiet", RULE: "rule", **{colour: f"series-{i}" for i, colour in enumerate(SERIES)}}
"""Colour -> its CSS variable, so that a page can have a dark mode."""

FORMATS = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {"Software": None}}
"""Suffix -> metadata without a date, so that the same data gives the same bytes."""

WIDTH = 4.5
"""Width of a chart in inches; readable on a phone and in a column of a paper."""

HOVER = "hover: "
"""Prefix of the ids of artists with a tooltip."""

STYLE: dict[Any, Any] = {
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": RULE,
    "axes.labelcolor": INK,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "rerank",
}


def colour(number: int) -> str:
    return SERIES[number % len(SERIES)]


def hover(artist: Artist, text: str) -> None:
    """Gives the artist a tooltip; only SVG shows it."""
    artist.set_gid(HOVER + " ".join(text.split()))


def draw_figure(draw: Callable[..., None], *data: object, height: float = 3.0) -> Figure:
    """Calls `draw(figure, *data)` on a new figure of `height` inches, and returns the figure."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height))
        draw(figure, *data)
    return figure


def format_of(out: Path) -> str:
    """The suffix of a file; raises UserError if it is not one of FORMATS."""
    suffix = out.suffix.lower()
    if suffix not in FORMATS:
        raise UserError(f"--out {out}: expected a name that ends in {', '.join(FORMATS)}")
    return suffix


def save(figure: Figure, out: Path) -> None:
    """Writes a PDF, SVG or PNG file (see `format_of`)."""
    suffix = format_of(out)
    with atomic_write(out) as tmp:
        tmp.write_bytes(_rendered(figure, suffix))


def inline_svg(figure: Figure, key: str, label: str) -> str:
    """The chart as an <svg> element of a page: ids begin with `key`, `label` is its aria-label.

    Colours become CSS variables, for the dark mode; matplotlib writes them as #rrggbb.
    """
    svg = _rendered(figure, ".svg").decode()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<(metadata|style)\b.*?</\1>\s*", "", svg, flags=re.DOTALL)  # its style would apply to the whole page
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{key}-", svg)
    for hexadecimal, name in CSS_NAMES.items():
        svg = svg.replace(hexadecimal, f"var(--{name})")
    box = re.search(r'viewBox="[^"]*"', svg)
    assert box, "matplotlib writes a viewBox"
    label = html.escape(label)
    return re.sub(r"<svg[^>]*>", lambda _: f'<svg {box[0]} role="img" aria-label="{label}">', svg, count=1)


def _rendered(figure: Figure, suffix: str) -> bytes:
    """The content of a file with this suffix; an SVG has tooltips and no background."""
    out, is_svg = io.BytesIO(), suffix == ".svg"  # in memory: matplotlib's PDF writer hides the reason of disk errors
    with mpl.rc_context(STYLE):
        figure.savefig(out, format=suffix[1:], dpi=300, metadata=FORMATS[suffix], transparent=is_svg)
    if not is_svg:
        return out.getvalue()
    # matplotlib has no tooltips; it writes an artist's gid as the id of its group, escaped.
    titled = re.sub(rf"<g id=([\"']){HOVER}(.*?)\1>", r"<g><title>\2</title>", out.getvalue().decode())
    return f"{titled.rstrip()}\n".encode()
