"""The hits of a search as lines of text: a table, with each document's snippet below its row."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

from rerank.data.types import Hit, Marked

INDENT = " " * 6
MARK, UNMARK = "\033[1;33m", "\033[0m"
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""Characters that a terminal would obey."""


def print_hits(hits: Sequence[Hit], stages: Sequence[str] = ()) -> None:
    """Prints the hits, with what these stages say of them.

    Words are marked by colour on a terminal, and by asterisks elsewhere and with NO_COLOR.
    """
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = shutil.get_terminal_size((100, 24)).columns
    for line in hit_lines(hits, max(width, 40), (MARK, UNMARK) if colour else ("*", "*"), stages):
        print(line)


def hit_lines(hits: Sequence[Hit], width: int, around: tuple[str, str], stages: Sequence[str] = ()) -> Iterator[str]:
    """The lines of the hits, snippets broken at `width` characters; `around` goes before and after a marked word.

    For each of the `stages` there are two columns: the rank and the score that it gives the document.
    """
    if not hits:
        return
    head = ["rank", "score", *(f"{name} {what}" for name in stages for what in ("rank", "score"))]
    rows = [[f"{hit.rank}", f"{hit.score:.4f}", *_of_stages(hit, stages)] for hit in hits]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]

    def line(cells: Sequence[str], last: str) -> str:
        return "  ".join([*(cell.rjust(size) for cell, size in zip(cells, widths, strict=True)), last])

    yield line(head, "document")
    for hit, row in zip(hits, rows, strict=True):
        title = f"  {_marked(hit.title, around)}" if hit.title.text else ""
        yield line(row, CONTROL.sub("\ufffd", hit.doc_id) + title)
        for part in _broken(hit.snippet, width - len(INDENT)):
            yield INDENT + _marked(part, around)
        if stages and hit.matches:
            pairs = ", ".join(f"{word} → {match}" for word, match in hit.matches)
            yield from textwrap.wrap(f"matched: {pairs}", width, initial_indent=INDENT, subsequent_indent=INDENT)


def _of_stages(hit: Hit, stages: Sequence[str]) -> Iterator[str]:
    for name in stages:
        rank, score = hit.stages.get(name, ("–", None))
        yield from (f"{rank}", "–" if score is None else f"{score:.4f}")


def _marked(text: Marked, around: tuple[str, str]) -> str:
    before, after = around
    parts = ((CONTROL.sub("\ufffd", part), is_mark) for part, is_mark in text.parts())
    return "".join(f"{before}{part}{after}" if is_mark else part for part, is_mark in parts)


def _broken(text: Marked, width: int) -> Iterator[Marked]:
    """The text in lines, broken at single spaces; the marks of a line are within it."""
    begin = 0
    for line in textwrap.wrap(text.text, width, break_long_words=False, break_on_hyphens=False):
        end = begin + len(line)
        inside = ((max(first, begin), min(last, end)) for first, last in text.marks if first < end and last > begin)
        yield Marked(line, tuple((first - begin, last - begin) for first, last in inside))
        begin = end + 1
