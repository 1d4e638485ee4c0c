"""Splits: which queries train and which validate, where a collection does not say it."""

import random
from collections.abc import Iterable

from rerank.data.folds import FINAL
from rerank.types import Fold
from rerank.utils.errors import UserError

SHARE = 0.1
"""The share of the queries that validate."""


def hold_out(query_ids: Iterable[str], seed: int = 0) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The queries that train, and the SHARE of them, at least one, that validate; both in the order given.

    The same queries and seed give the same split in any order. Raises UserError for fewer than two queries.

    >>> hold_out(["a", "b", "c"])
    (('a', 'c'), ('b',))
    """
    query_ids = list(dict.fromkeys(query_ids))
    if len(query_ids) < 2:
        raise UserError(
            f"splits: got {len(query_ids)} judged queries to train on; expected 2 or more, as one validates"
        )
    count = max(1, round(SHARE * len(query_ids)))
    drawn = set(random.Random(seed).sample(sorted(query_ids), count))
    train = tuple(query_id for query_id in query_ids if query_id not in drawn)
    return train, tuple(query_id for query_id in query_ids if query_id in drawn)


def final_fold(query_ids: Iterable[str], seed: int = 0, validated: bool = True) -> Fold:
    """The fold of the model to deploy: these queries train, but for those that validate, if it is `validated`.

    It has no test queries. Raises UserError for too few queries.
    """
    if not validated:
        return Fold(FINAL, tuple(dict.fromkeys(query_ids)), (), ())
    train, valid = hold_out(query_ids, seed)
    return Fold(FINAL, train, valid, ())
