"""Checks of runs and judgments that a caller passes to a public function; numpy's numbers and ids are converted."""

import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from rerank.data.types import FLOAT32_MAX, Qrels, Run
from rerank.utils.errors import UserError

Value = TypeVar("Value", int, float)


def given_run(run: Mapping[str, Mapping[str, float]], what: str = "run") -> Run:
    """The run with plain ids and scores; `what` names it in errors.

    Raises TypeError for a value other than {query_id: {doc_id: score}}, an id that is not a text, and a score that is
    not a number.

    >>> import numpy as np
    >>> given_run({"q1": {np.str_("d1"): np.float32(1.5)}})
    {'q1': {'d1': 1.5}}
    """
    return _plain(run, what, "score", {float}, _score)


def given_runs(runs: Iterable[Mapping[str, Mapping[str, float]]]) -> list[Run]:
    """The runs of a sequence, each as `given_run` gives it; raises TypeError as it does, and for a single run.

    Raises UserError as `check_scores`.

    >>> given_runs({"q1": {"d1": 1.5}})
    Traceback (most recent call last):
    TypeError: runs: expected a sequence of runs, got dict
    """
    if isinstance(runs, str | Mapping) or not isinstance(runs, Iterable):
        raise TypeError(f"runs: expected a sequence of runs, got {type(runs).__name__}")
    found = [given_run(run, f"runs[{place}]") for place, run in enumerate(runs)]
    for place, run in enumerate(found):
        check_scores(run, f"runs[{place}], ")
    return found


def check_scores(run: Run, where: str = "") -> None:
    """Raises UserError for a score that is not a finite float32: pytrec_eval would rank a NaN first."""
    for query_id, scores in run.items():
        if not all(-FLOAT32_MAX <= score <= FLOAT32_MAX for score in scores.values()):
            doc_id, got = next(pair for pair in scores.items() if not -FLOAT32_MAX <= pair[1] <= FLOAT32_MAX)
            raise UserError(f"{where}query {query_id}, document {doc_id}: expected a finite score (float32), got {got}")


def given_qrels(qrels: Mapping[str, Mapping[str, int]]) -> Qrels:
    """The judgments with plain ids and grades; raises TypeError as `given_run`, and for a grade that is no integer.

    >>> given_qrels({"q1": {"d1": 1.0}})
    {'q1': {'d1': 1}}
    """
    return _plain(qrels, "qrels", "grade", {int}, _grade)


def given_number(number: object, what: str) -> None:
    """Raises TypeError for what is no number."""
    if not isinstance(number, numbers.Real):
        raise TypeError(f"{what}: expected a number, got {number!r:.80}")


def given_weights(weights: object, what: str = "weights") -> tuple[float, ...]:
    """The weights of runs as plain numbers; raises TypeError for what is no sequence of numbers.

    >>> given_weights(0.5)
    Traceback (most recent call last):
    TypeError: weights: expected a sequence of numbers, got float
    """
    if isinstance(weights, str | Mapping) or not isinstance(weights, Iterable):
        raise TypeError(f"{what}: expected a sequence of numbers, got {type(weights).__name__}")
    found = tuple(weights)
    for place, weight in enumerate(found):
        if not isinstance(weight, numbers.Real):
            raise TypeError(f"{what}[{place}]: expected a number, got {weight!r:.80}")
    return tuple(float(weight) for weight in found)


def given_count(count: object, what: str) -> None:
    """Raises TypeError for what is neither a whole number nor None, and ValueError for a number below 1.

    >>> given_count(-1, "top_k")
    Traceback (most recent call last):
    ValueError: top_k: expected 1 or more, got -1
    """
    if count is not None:
        given_whole(count, what)


def given_whole(number: object, what: str, least: int = 1) -> None:
    """Raises TypeError for what is no whole number, and ValueError for a number below `least`."""
    if isinstance(number, bool) or not isinstance(number, numbers.Integral):
        raise TypeError(f"{what}: expected a whole number, got {number!r:.80}")
    if number < least:
        raise ValueError(f"{what}: expected {least} or more, got {number}")


def _plain(
    given: Mapping[str, Mapping[str, Value]],
    what: str,
    value: str,
    types: set[type],
    convert: Callable[[object, str], Value],
) -> dict[str, dict[str, Value]]:
    expected = f"expected {{query_id: {{doc_id: {value}}}}}"
    if not isinstance(given, Mapping):
        raise TypeError(f"{what}: {expected}, got {type(given).__name__}")
    checked = {}
    for query_id, documents in given.items():
        where = f"{what}, query {query_id}"
        if not isinstance(documents, Mapping):
            raise TypeError(f"{where}: {expected}, got {type(documents).__name__}")
        values: dict[str, Value] = dict(documents)
        if not ({*map(type, values)} <= {str} and {*map(type, values.values())} <= types):
            values = {_id(d, where): convert(found, f"{where}, document {d}") for d, found in values.items()}
        checked[_id(query_id, what)] = values
    return checked


def _id(given: object, where: str) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{where}: expected ids of the type str, got {given!r} ({type(given).__name__})")
    return str(given)


def _score(given: object, where: str) -> float:
    if not isinstance(given, numbers.Real):
        raise TypeError(f"{where}: expected a number as score, got {given!r}")
    try:
        return float(given)
    except OverflowError:
        raise UserError(
            f"{where}: expected a finite score (float32), got a number of {len(str(given))} digits"
        ) from None


def _grade(given: object, where: str) -> int:
    if isinstance(given, numbers.Integral):
        return int(given)
    if isinstance(given, numbers.Real) and float(given).is_integer():
        return int(float(given))
    raise TypeError(f"{where}: expected a whole number as grade, got {given!r}")
