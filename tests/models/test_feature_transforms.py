"""Transforms of feature vectors: what they do to usual, constant and huge values."""

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from rerank.data.letor.store import FeatureSet
from rerank.models import feature_transforms
from rerank.models.feature_transforms import QUANTILES, log1p, quantile_ranks, training_quantiles

HUGE = 3.4e38


def set_of(columns):
    """A set of one query for every two documents, from the values of each feature."""
    values = np.array(columns, dtype=np.float32).T.copy()
    starts = np.arange(0, len(values), 2)
    query_ids = tuple(map(str, range(len(starts))))
    return FeatureSet(values, np.zeros(len(values), np.int32), starts, np.minimum(starts + 2, len(values)), query_ids)


def ranks_of(training, values):
    """The ranks of some values of one feature whose training values are given."""
    quantiles = training_quantiles(set_of([training]))
    return quantile_ranks(torch.tensor(values, dtype=torch.float32)[:, None], quantiles)[:, 0].tolist()


def test_log1p_keeps_the_sign():
    found = log1p(torch.tensor([-HUGE, -1.0, 0.0, 1.0, HUGE]))
    assert found.tolist() == pytest.approx([-88.72, -0.6931, 0, 0.6931, 88.72], abs=1e-2)


def test_ranks_are_the_part_of_the_training_documents_below():
    values = np.random.default_rng(0).lognormal(sigma=4, size=5001).astype(np.float32)
    found = ranks_of(values, values)
    np.testing.assert_allclose(found, (rankdata(values) - 1) / 5000, atol=1 / (QUANTILES - 1))
    assert min(found) == 0
    assert max(found) == 1


def test_a_value_between_quantiles_is_interpolated_and_one_outside_is_cut():
    training = np.arange(QUANTILES) * 10.0
    assert ranks_of(training, [-5, 0, 10, 12.5, 2560, 9999]) == pytest.approx([0, 0, 1 / 256, 1.25 / 256, 1, 1])


def test_equal_values_have_the_middle_of_their_ranks():
    training = [0.0] * 600 + [5.0] * 400
    of_zero, of_five = 0.3, 0.8
    assert ranks_of(training, [0, 5]) == pytest.approx([of_zero, of_five], abs=2 / QUANTILES)
    assert 0.59 < ranks_of(training, [2.5])[0] < 0.61


def test_fewer_documents_than_quantiles():
    assert ranks_of([3.0, 1.0, 2.0], [0, 1, 2, 3, 4]) == pytest.approx([0, 0.25, 0.75, 1, 1], abs=0.26)


@pytest.mark.parametrize("value", [0.0, 7.0, -HUGE])
def test_a_constant_feature_tells_nothing(value):
    assert ranks_of([value] * 10, [value, -1, 1, HUGE]) == [0.5] * 4


def test_huge_values_do_not_overflow():
    found = ranks_of([-HUGE, -1.0, 0.0, 1.0, HUGE], [-HUGE, -HUGE / 2, 0, HUGE / 2, HUGE])
    assert found == sorted(found)
    assert all(0 <= rank <= 1 for rank in found)


def test_features_keep_their_places():
    quantiles = training_quantiles(set_of([np.arange(300.0), -np.arange(300.0)]))
    ranks = quantile_ranks(torch.tensor([[0.0, 0.0], [299.0, -299.0], [150.0, -75.0]]), quantiles)
    expected = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.5, 0.75]])
    torch.testing.assert_close(ranks, expected, atol=0.01, rtol=0)


def test_many_documents_are_sampled_from_all_of_the_set(monkeypatch):
    monkeypatch.setattr(feature_transforms, "SAMPLE", 1000)
    quantiles = training_quantiles(set_of([np.arange(50_000.0)]))[0]
    assert quantiles.shape == (QUANTILES,)
    assert (quantiles[0], quantiles[-1]) == (0, 49_999)
    torch.testing.assert_close(quantiles, torch.linspace(0, 49_999, QUANTILES), atol=100.0, rtol=0)
