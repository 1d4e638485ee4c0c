"""Runs and judgments that a caller gives: numpy's numbers and ids are taken, what is none is refused with its place."""

import numbers
from collections.abc import Callable, Mapping
from typing import Any

from rerank.data.types import Qrels, Run


def given_run(run: Mapping[str, Mapping[str, Any]], what: str = "run") -> Run:
    """The run with plain ids and scores; `what` names it in errors.

    Raises TypeError for what is no {query_id: {doc_id: score}}, for an id that is no text, and for a score that is no
    number.

    >>> import numpy as np
    >>> given_run({"q1": {np.str_("d1"): np.float32(1.5)}})
    {'q1': {'d1': 1.5}}
    """
    return _plain(run, what, "score", {float, int}, _score)


def given_qrels(qrels: Mapping[str, Mapping[str, Any]], what: str = "qrels") -> Qrels:
    """The judgments with plain ids and grades; raises TypeError as `given_run`, for a grade that is no whole number.

    >>> given_qrels({"q1": {"d1": 1.0}})
    {'q1': {'d1': 1}}
    """
    return _plain(qrels, what, "grade", {int}, _grade)


def _plain(
    given: Mapping[str, Mapping[str, Any]], what: str, value: str, types: set[type], convert: Callable[[Any, str], Any]
) -> dict[str, dict[str, Any]]:
    expected = f"expected {{query_id: {{doc_id: {value}}}}}"
    if not isinstance(given, Mapping):
        raise TypeError(f"{what}: {expected}, got {type(given).__name__}")
    found = {}
    for query_id, of_query in given.items():
        where = f"{what}, query {query_id}"
        if not isinstance(of_query, Mapping):
            raise TypeError(f"{where}: {expected}, got {type(of_query).__name__}")
        values = dict(of_query)
        if not ({*map(type, values)} <= {str} and {*map(type, values.values())} <= types):
            values = {_id(d, where): convert(one, f"{where}, document {d}") for d, one in values.items()}
        found[_id(query_id, what)] = values
    return found


def _id(given: Any, where: str) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{where}: expected ids of the type str, got {given!r} ({type(given).__name__})")
    return str(given)


def _score(given: Any, where: str) -> float:
    if not isinstance(given, numbers.Real):
        raise TypeError(f"{where}: expected a number as score, got {given!r}")
    return float(given)


def _grade(given: Any, where: str) -> int:
    if not (isinstance(given, numbers.Real) and float(given).is_integer()):
        raise TypeError(f"{where}: expected a whole number as grade, got {given!r}")
    return int(float(given))
