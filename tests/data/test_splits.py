"""Splits: which queries validate, drawn by a seed."""

import random

import pytest

from rerank.data.splits import final_fold, hold_out
from rerank.data.types import Fold
from rerank.utils.errors import UserError

QUERIES = [str(number) for number in range(301, 351)]


@pytest.mark.parametrize(("queries", "held_out"), [(2, 1), (3, 1), (14, 1), (16, 2), (50, 5)])
def test_a_tenth_of_the_queries_validates_but_at_least_one(queries, held_out):
    train, valid = hold_out(QUERIES[:queries])
    assert len(valid) == held_out
    assert sorted(train + valid) == QUERIES[:queries]


def test_the_split_depends_on_the_seed_and_not_on_the_order():
    train, valid = hold_out(QUERIES, seed=3)
    shuffled = random.Random(0).sample(QUERIES, len(QUERIES))
    assert [set(part) for part in hold_out(shuffled, seed=3)] == [set(train), set(valid)]
    assert hold_out(QUERIES, seed=4)[1] != valid
    assert hold_out(shuffled)[0] == tuple(query_id for query_id in shuffled if query_id in hold_out(QUERIES)[0])


def test_one_query_cannot_both_train_and_validate():
    with pytest.raises(UserError, match="got 1 judged queries to train on; expected 2 or more, as one validates"):
        hold_out(["a", "a"])


def test_the_final_fold_has_every_query_and_tests_none():
    fold = final_fold(QUERIES, seed=1)
    assert (fold.name, fold.test) == ("final", ())
    assert (fold.train, fold.valid) == hold_out(QUERIES, 1)
    assert final_fold(QUERIES, seed=1, validated=False) == Fold("final", tuple(QUERIES), (), ())
