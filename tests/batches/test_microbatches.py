"""Micro-batches: every passage once, longest first, within the budget."""

import random

import pytest

from rerank.batches.microbatches import make_microbatches


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("tokens", [1, 50, 512, 2000, 10**6])
def test_every_passage_is_in_one_micro_batch_within_the_budget(tokens, padded):
    lengths = [random.Random(tokens).randint(3, 512) for _ in range(200)]
    groups = make_microbatches(lengths, tokens, padded)
    assert sorted(place for group in groups for place in group) == list(range(200))
    taken = [lengths[place] for group in groups for place in group]
    assert taken == sorted(lengths, reverse=True)
    for group in groups:
        inside = [lengths[place] for place in group]
        assert len(group) == 1 or (max(inside) * len(inside) if padded else sum(inside)) <= tokens


def test_they_are_as_few_as_the_order_allows():
    assert make_microbatches([4, 4, 4, 4], 8) == [[0, 1], [2, 3]]
    assert make_microbatches([5, 4, 4], 10, padded=True) == [[0, 1], [2]]
    assert make_microbatches([5, 4, 1], 10) == [[0, 1, 2]]
