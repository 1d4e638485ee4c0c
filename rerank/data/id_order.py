"""Sorts strings that are put together in one array: by their bytes, which for UTF-8 is the order of Python's texts."""

import numpy as np

from rerank.data.arrays import release

COLUMN = 8
"""Bytes that are compared at a time, as one number."""
ROWS_AT_ONCE = 2**18


def sort_strings(content: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order of the strings, equal ones in the order they have, and which of them repeat the one before.

    String i is `content[offsets[i]:offsets[i + 1]]`, uint8. Returns (strings,) uint32 and (strings,) bool. It takes
    about 40 bytes a string, whatever their lengths: only strings that are equal so far are compared further.
    """
    order = np.arange(len(offsets) - 1, dtype=np.uint32)
    repeats = np.zeros(len(order), dtype=bool)
    places = np.arange(len(order), dtype=np.uint32)  # in `order`: of the strings that are equal so far to a neighbour
    groups = np.zeros(len(order), dtype=np.uint32)  # which of them are equal so far
    begin = 0
    while len(places):
        rows = order[places]
        keys, read = _column(content, offsets, rows, begin)
        release(content)  # if it is memory-mapped
        by = np.lexsort((read, keys, groups)).astype(np.uint32)
        order[places] = rows[by]
        del rows
        keys = keys[by]  # one after the other: together they would take twice the memory
        read, groups = read[by], groups[by]
        del by
        same = np.zeros(len(places) + 1, dtype=bool)  # as the string before; a shorter one comes first
        same[1:-1] = (keys[1:] == keys[:-1]) & (read[1:] == read[:-1]) & (groups[1:] == groups[:-1])
        ended = read < COLUMN
        repeats[places[same[:-1] & ended]] = True
        same[:-1] &= ~ended
        tied = same[:-1] | same[1:]
        groups = np.cumsum(~same[:-1], dtype=np.uint32)[tied]
        places = places[tied]
        begin += COLUMN
    return order, repeats


def _column(content: np.ndarray, offsets: np.ndarray, rows: np.ndarray, begin: int) -> tuple[np.ndarray, np.ndarray]:
    """The bytes from `begin` of these strings as numbers that sort as they do, and how many of the bytes there are."""
    keys = np.zeros(len(rows), dtype=np.uint64)
    read = np.zeros(len(rows), dtype=np.uint8)
    for first in range(0, len(rows), ROWS_AT_ONCE):
        some = rows[first : first + ROWS_AT_ONCE]
        starts, stops = offsets[some].astype(np.int64) + begin, offsets[some + 1].astype(np.int64)
        key = np.zeros(len(some), dtype=np.uint64)
        for place in range(COLUMN):
            key <<= np.uint64(8)
            inside = starts + place < stops
            key[inside] |= content[starts[inside] + place]
        keys[first : first + ROWS_AT_ONCE] = key
        read[first : first + ROWS_AT_ONCE] = (stops - starts).clip(0, COLUMN)
    return keys, read
