"""How every chart looks, and how it becomes a file or a part of a page."""

import html
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from rerank.errors import UserError
from rerank.utils.files import atomic_write

SERIES = ("#2f6fb2", "#d1711f", "#2e8b57", "#8a5bb5", "#c2456b", "#1f8f9c", "#8c6d31", "#5b6abf")
INK, QUIET, RULE = "#22252b", "#7b818b", "#d9dce1"
"""The text; what is compared with; grids and frames."""
CSS_NAMES = {INK: "ink", QUIET: "quiet", RULE: "rule", **{colour: f"series-{i}" for i, colour in enumerate(SERIES)}}

FORMATS = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {"Software": None}}
"""The endings of files that can be written, and what keeps the time of day out: the same data, the same bytes."""

WIDTH = 4.5  # inches: 324 points, so that the text of a chart can be read on a phone and in a column of a paper
HOVER = "hover: "
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
    """The colour of the series of that number."""
    return SERIES[number % len(SERIES)]


def hover(artist: Any, text: str) -> None:
    """Lets a browser show `text` where the pointer rests on the artist; files other than SVG leave it out."""
    artist.set_gid(HOVER + " ".join(text.split()))


def legend_above(axes: Any, columns: int = 3) -> None:
    """The legend between title and axes, where it hides nothing."""
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=columns, borderaxespad=0.2)


def drawn(draw: Callable[..., None], data: Any, height: float = 3.0) -> Figure:
    """The figure of a chart's drawing function, `height` inches high."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height))
        draw(figure, data)
    return figure


def save(figure: Figure, out: Path) -> None:
    """Writes a PDF, SVG or PNG file, as the name ends; raises UserError for another ending."""
    ending = out.suffix.lower()
    if ending not in FORMATS:
        raise UserError(f"--out {out}: expected a name that ends in {', '.join(FORMATS)}")
    with atomic_write(out) as tmp:
        if ending == ".svg":
            tmp.write_text(_svg(figure), encoding="utf-8")
        else:
            with mpl.rc_context(STYLE):
                figure.savefig(tmp, format=ending[1:], dpi=300, metadata=FORMATS[ending])


def inline_svg(figure: Figure, key: str, label: str) -> str:
    """The chart as an element of a page: colours are CSS variables, every id begins with `key`, `label` is read out."""
    svg = _svg(figure)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<(metadata|style)\b.*?</\1>\s*", "", svg, flags=re.DOTALL)  # the style would be the whole page's
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{key}-", svg)
    for hexadecimal, name in CSS_NAMES.items():
        svg = svg.replace(hexadecimal, f"var(--{name})")
    box = re.search(r'viewBox="[^"]*"', svg)
    assert box, "matplotlib writes a viewBox"
    label = html.escape(label)
    return re.sub(r"<svg[^>]*>", lambda _: f'<svg {box[0]} role="img" aria-label="{label}">', svg, count=1)


def _svg(figure: Figure) -> str:
    out = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(out, format="svg", metadata=FORMATS[".svg"], transparent=True)
    # matplotlib has no hover texts; it writes an artist's gid as the id of its group, escaped.
    titled = re.sub(rf"<g id=([\"']){HOVER}(.*?)\1>", r"<g><title>\2</title>", out.getvalue())
    return titled.rstrip() + "\n"
