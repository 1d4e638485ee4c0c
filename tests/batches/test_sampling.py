"""Which documents make a list and which lists an epoch."""

import itertools
from collections import Counter

import numpy as np
import pytest

from rerank.batches.sampling import epoch_lists, sample_list
from rerank.data.types import Candidates

TEN = Candidates("q", tuple(f"d{i}" for i in range(10)), (0, 1, 0, 2, 0, 0, 1, 0, 0, 1))


@pytest.mark.parametrize(
    ("relevant", "other", "counts"), [(2, 2, (2, 2)), ("all", 2, (4, 2)), (1, "all", (1, 6)), (9, 9, (4, 6))]
)
def test_a_list_has_the_numbers_asked_for_or_what_there_is(relevant, other, counts):
    drawn = sample_list(TEN, relevant, other, np.random.default_rng(0))
    assert (sum(label >= 1 for label in drawn.labels), sum(label < 1 for label in drawn.labels)) == counts
    assert len(set(drawn.doc_ids)) == len(drawn.doc_ids)
    assert all(TEN.labels[TEN.doc_ids.index(d)] == label for d, label in zip(drawn.doc_ids, drawn.labels, strict=True))


def test_the_order_of_the_documents_is_drawn_too():
    """Every document stands before every other one in about half of the lists, whatever the first stage's order."""
    lists = [sample_list(TEN, "all", "all", np.random.default_rng(seed)).doc_ids for seed in range(300)]
    for above, below in itertools.combinations(TEN.doc_ids, 2):
        assert 100 < sum(order.index(above) < order.index(below) for order in lists) < 200


def test_every_pair_of_documents_is_drawn_in_time():
    rng = np.random.default_rng(0)
    seen = {frozenset(sample_list(TEN, 2, 2, rng).doc_ids) for _ in range(2000)}
    assert len(seen) == 6 * 15  # 4 over 2 relevant, 6 over 2 others


def test_epochs_use_every_query_equally_often_and_go_on_where_the_last_one_ended():
    queries = [Candidates(f"q{i}", TEN.doc_ids, TEN.labels) for i in range(5)]
    drawn = [found for epoch in range(5) for found in epoch_lists(queries, epoch, 8, 2, 2, seed=3)]
    assert set(Counter(found.query_id for found in drawn).values()) == {8}
    rounds = [found.query_id for found in drawn]
    assert all(len(set(rounds[i : i + 5])) == 5 for i in range(0, 40, 5))


def test_an_epoch_depends_on_seed_and_number_alone():
    queries = [Candidates(f"q{i}", TEN.doc_ids, TEN.labels) for i in range(5)]
    assert epoch_lists(queries, 3, 8, 2, 2, seed=1) == epoch_lists(queries, 3, 8, 2, 2, seed=1)
    assert epoch_lists(queries, 3, 8, 2, 2, seed=1) != epoch_lists(queries, 3, 8, 2, 2, seed=2)
    assert epoch_lists(queries, 3, 8, 2, 2, seed=1) != epoch_lists(queries, 4, 8, 2, 2, seed=1)
