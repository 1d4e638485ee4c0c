"""The one exception for a user's mistake: the command line prints its line and exits with code 2."""

import difflib
import importlib
import re
from collections.abc import Iterable


class UserError(Exception):
    r"""A message of one line: the mistake, its place, the value found, the value expected, and the remedy.

    >>> print(UserError("grid.toml: tra\ning: no such setting"))
    grid.toml: tra ing: no such setting
    """

    def __str__(self) -> str:
        return one_line(super().__str__())


UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufff9-\ufffb]")
"""Characters that a terminal obeys, that turn the direction of a text, or that cannot be written."""

MOST_LISTED = 100  # valid names in a message


def escaped(text: str) -> str:
    r"""A text for a terminal, in any script, with escapes for control characters.

    >>> print(escaped("a\u202eb"))
    a\u202eb
    """
    return UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def one_line(text: str) -> str:
    """The text in one line: line breaks become spaces, other control characters are escaped."""
    joined = " ".join(part.strip() for part in text.splitlines())
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in joined)


def nearest(name: str, valid: Iterable[str], otherwise: str = "") -> str:
    """A hint with the valid name nearest to `name`; if none is near, `otherwise` or a list of all valid names.

    Of more than MOST_LISTED names it lists the three nearest ones.

    >>> nearest("smothi", ["smoothi", "hinge"])
    'did you mean smoothi?'
    >>> nearest("xyz", ["smoothi", "hinge"])
    'expected one of hinge, smoothi'
    """
    valid = sorted(valid)
    folded = {option.casefold(): option for option in valid}  # ndgc is nearer to nDCG than to Rndcg
    close = difflib.get_close_matches(name.casefold(), folded, n=1)
    if close:
        return f"did you mean {folded[close[0]]}?"
    if len(valid) > MOST_LISTED:
        valid = sorted(difflib.get_close_matches(name, valid, n=3, cutoff=0))
    return otherwise or f"expected one of {', '.join(valid)}"


def needed(package: str, what: str, extra: str = "cpu") -> None:
    """Raises UserError, whose message begins with `what`, if a package of an extra cannot be imported."""
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise UserError(
            f'{what}: needs the package {package}, which cannot be imported ({error}); pip install "ir-rerank[{extra}]"'
        ) from error
