"""The scores of a run as texts: every evaluator reads the same order, and reading and writing them changes nothing."""

import itertools
from array import array

from rerank.utils.errors import UserError

FLOAT32_MAX = 3.4028235677973362e38
"""The largest float64 that rounds to a finite float32. (The nine digits of the largest float32 are a little above it.)
"""


def score_texts(scores: list[float], where: str) -> list[str]:
    """The scores of one query, descending, as texts that are strictly decreasing when they are read as float32."""
    texts = [f"{score:.6f}" for score in scores]
    if _decreases(texts) and not _have_nine_digits(scores):
        return texts
    import numpy as np  # only here: reading and evaluating a run should start at once

    lower = np.float32("-inf")
    exact = np.asarray(scores, dtype=np.float32)
    with np.errstate(over="ignore"):
        for i in range(1, len(exact)):
            exact[i] = min(exact[i], np.nextafter(exact[i - 1], lower))
    if exact[-1] == lower:
        raise UserError(f"{where}: scores tie at {scores[-1]:.9g}, and no float32 below is left to tell them apart")
    nine = [f"{score:.9g}" for score in exact.tolist()]
    six = [f"{float(text):.6f}" for text in nine]
    return six if list(map(float, six)) == list(map(float, nine)) else nine  # both are read as the same scores


def _decreases(texts: list[str]) -> bool:
    """Whether the scores are strictly decreasing when they are read as float32."""
    return all(above > below for above, below in itertools.pairwise(array("f", map(float, texts))))


def _have_nine_digits(scores: list[float]) -> bool:
    """Whether the scores were read from a run that had to be written with nine digits, and would lose some with six.

    They are then written with nine again, though six decimals may tell the separated ties apart: a run that is read and
    written is the same file. Two of them are then so close that they had a tie, or one once rounded to six decimals.
    """
    if not any(above - below <= 2e-6 + 2**-21 * abs(above) for above, below in itertools.pairwise(scores)):
        return False
    exact = array("f", scores)
    read = all(float(f"{rounded:.9g}") == score for rounded, score in zip(exact, scores, strict=True))
    return read and any(float(f"{score:.6f}") != score for score in scores)
