"""What NDCG of a batch takes as grades: judgments as they are, a teacher's scores scaled within each list."""

from rerank.batches.batch import make_batch
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
