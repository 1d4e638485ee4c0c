"""A batch of feature vectors holds every document of its queries once, in its place, and nothing else."""

import numpy as np
import pytest
import torch

from rerank.batches.features import FeatureList, make_feature_batch
from rerank.letor.source import open_fold
from tests.small_features import write_folds_of_features


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    folder = tmp_path_factory.mktemp("letor")
    return open_fold(str(write_folds_of_features(folder / "set")), "1", 5, folder / "cache").train


def batch_of(features, queries):
    return make_feature_batch([FeatureList(features, query, (0, query)) for query in queries])


def drawn(features, query):
    """The rows of a list of `batch_of`."""
    begin, end = int(features.begins[query]), int(features.ends[query])
    rows = begin + np.random.default_rng((0, query)).permutation(end - begin)
    assert sorted(rows) == list(range(begin, end))
    return rows


@pytest.mark.parametrize("queries", [[0], [5, 2, 11], [2, 2, 0], list(range(17, -1, -1))])
def test_it_is_the_queries_rows_one_after_the_other_and_their_labels_on_the_grid(features, queries):
    batch = batch_of(features, queries)
    found, row = [], 0
    for place, query in enumerate(queries):
        rows = drawn(features, query)
        assert batch.mask[place].tolist() == [i < len(rows) for i in range(batch.mask.shape[1])]
        assert batch.labels[place, : len(rows)].tolist() == features.labels[rows].tolist()
        assert not batch.labels[place, len(rows) :].any()
        found.append(features.features[rows])
        row += len(rows)
    assert torch.equal(batch.inputs.features, torch.from_numpy(np.concatenate(found)))
    assert batch.mask.sum() == row == len(batch.inputs.features)
    assert batch.mask.shape[1] == max(map(len, found))
    assert batch.query_ids == tuple(features.query_ids[query] for query in queries)
    assert torch.equal(batch.grid(torch.arange(row) + 1.0)[batch.mask], torch.arange(row) + 1.0)


def test_a_list_in_another_order_or_company_is_the_same_list(features):
    one, other = batch_of(features, [3, 7, 12]), batch_of(features, [12, 3])
    for place, there in ((0, 1), (2, 0)):
        for grid, its in ((one.labels, other.labels), (one.mask, other.mask)):
            width = min(grid.shape[1], its.shape[1])
            assert torch.equal(grid[place, :width], its[there, :width])
        mine, its = (b.inputs.features[b.grid(torch.arange(len(b.inputs.features)))[row][b.mask[row]]]
                     for b, row in ((one, place), (other, there)))  # fmt: skip
        assert torch.equal(mine, its)


def test_a_list_names_its_query_and_documents(features):
    found = FeatureList(features, 4, (0,))
    assert found.doc_ids[0] == f"d{found.query_id}-0"
    assert len(found.doc_ids) == features.ends[4] - features.begins[4]


def test_the_files_order_is_not_taught(features):
    longest = int((features.ends - features.begins).argmax())
    orders = {tuple(FeatureList(features, longest, (0, 1, place)).rows()) for place in range(20)}
    assert len(orders) > 10
