"""Snippets: the part of a text with the most words of a query, which are marked."""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from rerank.config.languages import ENGLISH
from rerank.data.types import Marked
from rerank.retrieval.words import Word, find_words

LENGTH = 240
"""Characters of a snippet, at most, without the dots at its ends."""


def snippet(text: str, terms: Collection[str], language: str = ENGLISH, length: int = LENGTH) -> Marked:
    """The part of at most `length` characters with the most of these terms, in which their words are marked.

    `terms` are those of `find_words`. White space becomes single spaces. Where the text goes on, the part begins and
    ends with a word, and with dots. Raises UserError for an unknown language.
    """
    text = " ".join(text.split())
    return best_part(text, find_words(text, language), terms, length)


def best_part(text: str, words: Sequence[Word], terms: Collection[str], length: int = LENGTH) -> Marked:
    """As `snippet`, from the words of a text whose white space is single spaces."""
    begin, end = _part(text, words, terms, length)
    before, after = "… " if begin else "", " …" if end < len(text) else ""
    marks = _merged((word.begin, word.end) for word in words if word.term in terms)
    shift = len(before) - begin
    inside = tuple((first + shift, last + shift) for first, last in marks if begin <= first < last <= end)
    return Marked(before + text[begin:end] + after, inside)


def _part(text: str, words: Sequence[Word], terms: Collection[str], length: int) -> tuple[int, int]:
    """Where the part begins and ends."""
    if len(text) <= length:
        return 0, len(text)
    if not words:
        return 0, length
    words = list(words)
    if words[0].end <= length:  # leading and trailing punctuation belongs to the first and last word
        words[0] = words[0]._replace(begin=0)
    if len(text) - words[-1].begin <= length:
        words[-1] = words[-1]._replace(end=len(text))
    first, last = _best_window(words, terms, length)
    return words[first].begin, min(words[last].end, words[first].begin + length)


def _best_window(words: Sequence[Word], terms: Collection[str], length: int) -> tuple[int, int]:
    """The first and the last word of the part with the most different terms, and of those with the most words.

    Of several parts it is the first, moved so that the words have as much text before as after. Without any of the
    terms it is the beginning.
    """
    inside: Counter[str] = Counter()
    windows, first, value = [], 0, (0, 0)
    for last, word in enumerate(words):
        changed = word.term in terms
        if changed:
            inside[word.term] += 1
        while first < last and word.end - words[first].begin > length:
            if words[first].term in terms:
                inside -= Counter([words[first].term])
                changed = True
            first += 1
        if changed:
            value = len(inside), inside.total()
        windows.append((value, first, last))
    best = max(value for value, _, _ in windows)
    runs = ((value, list(run)) for value, run in itertools.groupby(windows, key=lambda window: window[0]))
    run = next(run for value, run in runs if value == best)
    if best == (0, 0):
        run = [window for window in run if window[1] == 0][-1:]
    _, first, last = run[len(run) // 2]
    return first, last


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans in their order, those that overlap as one."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged
