"""The lines of a run or qrels file: numbered, without comments, and with what is empty at the end."""

import re
from collections.abc import Iterator
from pathlib import Path

from rerank.data.text_lines import read_blocks
from rerank.utils.errors import UserError
from rerank.utils.progress import log

NUMBER = re.compile(rb"[-+]?[0-9.]+([eE][-+]?[0-9]+)?")


def numbered_lines(path: str | Path, expected: str) -> Iterator[tuple[int, bytes]]:
    """The lines and their numbers, without comments, which it logs; raises UserError if all are comments.

    A comment begins with `#`. A query id may begin so too: a line with all columns is none, unless `#` is the first.
    """
    width, number, comments, kept = len(expected.split()), 0, 0, False
    empty: list[tuple[int, bytes]] = []
    for block in read_blocks(path, f"lines of `{expected}`"):
        first, number = number + 1, number + block.count(b"\n")
        if block.isspace():  # no matter at the end, where a file may have any number of empty lines
            empty = empty or [(first, b"")]
            continue
        yield from empty
        empty = []
        numbered = enumerate(block.removesuffix(b"\n").split(b"\n"), first)
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


def _is_comment(words: list[bytes], width: int) -> bool:
    if not words or not words[0].startswith(b"#"):
        return False
    return words[0] == b"#" or len(words) != width or not NUMBER.fullmatch(words[4 if width == 6 else -1])
