"""What NDCG of a batch takes as grades, and micro-batches: every passage once, longest first, within the budget."""

import random

import pytest

from rerank.batches.batch import make_batch, make_microbatches
from rerank.data.types import Candidates
from rerank.losses import exact_metric

LISTS = [
    Candidates("q1", ("a", "b", "c"), (-3.5, 6.5, 1.5)),
    Candidates("q2", ("a", "b"), (-2.0, -2.0)),
    Candidates("q3", ("d", "b"), (-20.0, -10.0)),
]


def test_scores_of_a_teacher_are_scaled_to_0_to_1_within_each_list():
    batch = make_batch(LISTS, lambda pairs: pairs, scored=True)
    assert batch.labels.tolist() == [[-3.5, 6.5, 1.5], [-2, -2, 0], [-20, -10, 0]]
    assert batch.grades().tolist() == [[0, 1, 0.5], [0, 0, 0], [0, 1, 0]]
    ndcg = exact_metric(batch.labels, batch.grades(), batch.mask)
    assert ndcg.tolist() == [1, 0, 1]  # of the teacher's own order; 0 where it tells no documents apart
    assert (exact_metric(-batch.labels, batch.grades(), batch.mask)[[0, 2]] < 0.8).all()


def test_judgments_are_grades():
    batch = make_batch([Candidates("q1", ("a", "b"), (2, 0)), Candidates("q2", ("a",), (1,))], lambda pairs: pairs)
    assert batch.grades() is batch.labels
    assert batch.labels.tolist() == [[2, 0], [1, 0]]


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
