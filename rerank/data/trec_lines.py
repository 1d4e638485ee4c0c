"""The lines of a run or qrels file: numbered, without comments, and with what is empty at the end."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from rerank.data.text_lines import BLOCK, read_blocks, size_of_text
from rerank.utils.errors import UserError
from rerank.utils.progress import log, progress

LARGE = 2**26
"""Bytes of text whose reading shows a progress bar."""
NUMBER = re.compile(rb"[-+]?[0-9.]+([eE][-+]?[0-9]+)?")


Take = Callable[[int, bytes], bool]
"""Is given the number of a block's first line and the block; whether it reads the block itself."""


def numbered_lines(path: str | Path, expected: str, take: Take | None = None) -> Iterator[tuple[int, bytes]]:
    """The lines and their numbers, without comments, which it logs; raises UserError if all are comments.

    A comment begins with `#`. A query id may begin so too: a line with all columns is none, unless `#` is the first.
    The lines of a block that `take` reads are left out. It is not asked about what follows an empty line, which only
    other empty lines may follow.
    """
    width, number, comments, kept = len(expected.split()), 0, 0, False
    empty: list[tuple[int, bytes]] = []
    for block in _read_blocks(path, expected):
        first, number = number + 1, number + block.count(b"\n")
        if block.isspace():  # no matter at the end, where a file may have any number of empty lines
            empty, take = empty or [(first, b"")], None
            continue
        yield from empty
        empty = []
        if take is not None and take(first, block):
            kept = True
            continue
        lines = block.removesuffix(b"\n").split(b"\n")
        if take is not None and not all(map(bytes.strip, lines)):
            take = None
        numbered = enumerate(lines, first)
        if b"#" not in block:
            kept = True
            yield from numbered
            continue
        for place, line in numbered:
            if line.lstrip().startswith(b"#") and _is_comment(line.split(), width):
                comments += 1
            else:
                kept = True
                yield place, line
    if comments and not kept:
        raise UserError(f"{path}: nothing but comments; expected lines of `{expected}`")
    if comments:
        log.info(f"{path}: lines with comments (#), which are left out: {comments}")


def are_empty(lines: Iterator[tuple[int, bytes]]) -> bool:
    """Whether the rest of the lines is empty, as at the end of a file."""
    return not any(line.split() for _, line in lines)


def _read_blocks(path: str | Path, expected: str) -> Iterator[bytes]:
    blocks, size = read_blocks(path, f"lines of `{expected}`"), size_of_text(path)
    return progress(blocks, -(-size // BLOCK), f"reading {Path(path).name}", show=size > LARGE)


def _is_comment(words: list[bytes], width: int) -> bool:
    if not words or not words[0].startswith(b"#"):
        return False
    return words[0] == b"#" or len(words) != width or not NUMBER.fullmatch(words[4 if width == 6 else -1])
