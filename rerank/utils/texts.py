"""Checks of texts that a caller passes to a public function; the errors say what was expected."""

import os
from collections.abc import Iterable, Mapping

from rerank.utils.errors import UserError


def counted(count: int, noun: str) -> str:
    """A number and its noun.

    >>> counted(1, "query"), counted(1_200, "query"), counted(2, "step")
    ('1 query', '1,200 queries', '2 steps')
    """
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun.removesuffix('y')}ies" if noun.endswith("y") else f"{count:,} {noun}s"


def list_of_texts(what: str, given: Iterable[object]) -> list[str]:
    """The texts of a sequence, iterator, array or pandas Series, in their order; `what` names them in errors.

    Raises TypeError for a single text, a mapping, a set, a DataFrame and values that are not texts, and UserError for
    invalid Unicode.

    >>> list_of_texts("documents", iter(["wing", "flutter"]))
    ['wing', 'flutter']
    >>> list_of_texts("documents", "wing")
    Traceback (most recent call last):
    TypeError: documents: expected a sequence of texts, got one text
    """
    if isinstance(given, str):
        raise TypeError(f"{what}: expected a sequence of texts, got one text")
    if not _has_order(given):
        raise TypeError(f"{what}: expected a sequence of texts, got {type(given).__name__}")
    return [check_text(f"{what}[{place}]", text) for place, text in enumerate(given)]


def list_of_pairs(given: Iterable[object]) -> list[tuple[str, str]]:
    """The (query, document) texts of a sequence or an iterator; raises the errors of `list_of_texts`.

    >>> list_of_pairs(zip(["wing"], ["flutter"]))
    [('wing', 'flutter')]
    >>> list_of_pairs(("wing", "flutter"))
    Traceback (most recent call last):
    TypeError: pairs: expected a sequence of (query, document) texts, got one pair of texts; put it into a list
    """
    expected = "pairs: expected a sequence of (query, document) texts"
    if isinstance(given, str) or not _has_order(given):
        raise TypeError(f"{expected}, got {'one text' if isinstance(given, str) else type(given).__name__}")
    found = list(given)
    if len(found) == 2 and all(isinstance(text, str) for text in found):
        raise TypeError(f"{expected}, got one pair of texts; put it into a list")
    pairs = []
    for place, pair in enumerate(found):
        if isinstance(pair, str | Mapping) or not isinstance(pair, Iterable) or len(texts := tuple(pair)) != 2:
            raise TypeError(f"pairs[{place}]: expected (query, document) texts, got {pair!r:.80}")
        query, document = (check_text(f"pairs[{place}][{part}]", text) for part, text in enumerate(texts))
        pairs.append((query, document))
    return pairs


def _has_order(given: object) -> bool:
    """Whether texts can be read from it by position: not from a set, and a DataFrame gives the names of its columns."""
    return isinstance(given, Iterable) and not (
        isinstance(given, Mapping | set | frozenset) or hasattr(given, "columns")
    )


def texts_by_id(what: str, given: object) -> dict[str, str]:
    """The texts of a mapping id -> text; raises TypeError for anything else, and the errors of `check_text`.

    >>> texts_by_id("queries", ["wing"])
    Traceback (most recent call last):
    TypeError: queries: expected {id: text}, got list
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"{what}: expected {{id: text}}, got {type(given).__name__}")
    return {check_text(f"{what}: id {key!r}", key): check_text(f"{what}[{key!r}]", text) for key, text in given.items()}


def check_path(what: str, given: object) -> str:
    """A path or a name as a text; raises TypeError for another type, and UserError for what no file can be named.

    >>> check_path("path", 1)
    Traceback (most recent call last):
    TypeError: path: expected a text or a path, got int
    """
    if not isinstance(given, str | os.PathLike):
        raise TypeError(f"{what}: expected a text or a path, got {type(given).__name__}")
    text = str(os.fspath(given))
    if "\0" in text:
        raise UserError(f"{what}: has a NUL character; expected the name of a file or folder")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise UserError(f"{what}: is not Unicode text at character {error.start}; expected UTF-8") from None
    return text


def check_name(what: str, given: object) -> str:
    """Returns a name, such as that of a run; raises TypeError for another type than a text."""
    if not isinstance(given, str):
        raise TypeError(f"{what}: expected a name, got {given!r:.80}")
    return given


def check_text(what: str, text: object) -> str:
    """Returns the text as a plain str; raises TypeError for another type, and UserError for a lone surrogate."""
    if not isinstance(text, str):
        raise TypeError(f"{what}: expected a text, got {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{what}: is not Unicode text at character {error.start}; expected UTF-8") from None
    return str(text)
