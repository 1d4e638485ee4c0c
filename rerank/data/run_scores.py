"""The scores of a run as texts: every evaluator reads the same order, and reading and writing them changes nothing."""

import itertools
import math
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
    nine = [f"{score:.9g}" for score in strictly_decreasing(scores, where)]
    six = [f"{float(text):.6f}" for text in nine]
    return six if list(map(float, six)) == list(map(float, nine)) else nine  # both are read as the same scores


def strictly_decreasing(scores: list[float], where: str) -> list[float]:
    """The scores of one query, in the order of its ranking, as float32 values: those that tie or rise are moved down.

    Each is at most the next float32 below the one before. Raises UserError, which begins with `where`, if no float32 is
    left below the last one.
    """
    import numpy as np  # only here: reading and evaluating a run should start at once

    exact = np.asarray(scores, dtype=np.float32)
    if (exact[1:] >= exact[:-1]).any():
        # Whole numbers in the order of float32 values, one for each: the next one below is 1 less.
        bits = exact.view(np.int32).astype(np.int64)
        numbers = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
        rank = np.arange(len(numbers))
        lower = np.minimum.accumulate(numbers + rank) - rank
        bits = np.where(lower < 0, -lower | 0x80000000, lower)
        exact = np.where(lower < numbers, bits.astype(np.uint32).view(np.float32), exact)
    if exact.size and not exact[-1] > -math.inf:
        raise UserError(f"{where}: scores tie at {scores[-1]:.9g}, and no float32 below is left to tell them apart")
    values: list[float] = exact.tolist()
    return values


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
