"""The one exception for a user's mistake: the command line prints its line and exits with code 2."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """What is wrong, where, what was got, what was expected and what to do, in one line."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """A hint that names the valid name nearest to `name`, or all of them where none is near.

    >>> nearest("smothi", ["smoothi", "hinge"])
    'did you mean smoothi?'
    >>> nearest("xyz", ["smoothi", "hinge"])
    'expected one of hinge, smoothi'
    """
    valid = sorted(valid)
    folded = {option.casefold(): option for option in valid}  # ndgc is nearer to nDCG than to Rndcg
    close = difflib.get_close_matches(name.casefold(), folded, n=1)
    return f"did you mean {folded[close[0]]}?" if close else f"expected one of {', '.join(valid)}"
