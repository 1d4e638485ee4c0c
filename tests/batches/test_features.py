"""A batch of feature vectors holds every document of its queries once, in its place, and nothing else."""

from collections import Counter

import pytest
import torch

from rerank.batches.features import FeatureList, make_feature_batch
from rerank.data.letor.layouts import open_fold
from tests.support.small_features import write_folds_of_features


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    folder = tmp_path_factory.mktemp("letor")
    fold, store = open_fold(str(write_folds_of_features(folder / "set")), "1", 5, folder / "cache")
    return store.features.subset(fold.train)


def batch_of(features, queries):
    return make_feature_batch([FeatureList(features, query, (0, query)) for query in queries])


def together(vectors, labels):
    """Documents with their labels, in an order that follows from them."""
    return sorted((*map(float, vector), float(label)) for vector, label in zip(vectors, labels, strict=True))


@pytest.mark.parametrize("queries", [[0], [5, 2, 11], [2, 2, 0], list(range(17, -1, -1))])
def test_it_is_the_queries_rows_one_after_the_other_and_their_labels_on_the_grid(features, queries):
    batch = batch_of(features, queries)
    row, lengths = 0, []
    for place, query in enumerate(queries):
        begin, end = features.starts[query], features.stops[query]
        lengths.append(int(end - begin))
        assert batch.mask[place].tolist() == [i < lengths[-1] for i in range(batch.mask.shape[1])]
        assert not batch.labels[place, lengths[-1] :].any()
        vectors, labels = batch.inputs[row : row + lengths[-1]], batch.labels[place, : lengths[-1]]
        assert together(vectors, labels) == together(features.features[begin:end], features.labels[begin:end])
        row += lengths[-1]
    assert batch.mask.sum() == row == len(batch.inputs)
    assert batch.mask.shape[1] == max(lengths)
    assert batch.query_ids == tuple(features.query_ids[query] for query in queries)
    assert torch.equal(batch.grid(torch.arange(row) + 1.0)[batch.mask], torch.arange(row) + 1.0)


def test_a_list_in_another_order_or_company_is_the_same_list(features):
    one, other = batch_of(features, [3, 7, 12]), batch_of(features, [12, 3])
    for place, there in ((0, 1), (2, 0)):
        for grid, its in ((one.labels, other.labels), (one.mask, other.mask)):
            width = min(grid.shape[1], its.shape[1])
            assert torch.equal(grid[place, :width], its[there, :width])
        mine, its = (b.inputs[b.grid(torch.arange(len(b.inputs)))[row][b.mask[row]]]
                     for b, row in ((one, place), (other, there)))  # fmt: skip
        assert torch.equal(mine, its)


def test_a_list_names_its_query_and_documents(features):
    found = FeatureList(features, 4, (0,))
    assert found.doc_ids[0] == f"d{found.query_id}-0"
    assert len(found.doc_ids) == features.stops[4] - features.starts[4]


def test_the_files_order_is_not_taught_but_every_order_alike(features):
    lengths = features.stops - features.starts
    query = int((lengths == 4).argmax())
    begin, draws = int(features.starts[query]), 4_800
    batch = make_feature_batch([FeatureList(features, query, (0, 1, place)) for place in range(draws)])
    documents = {tuple(features.features[begin + i].tolist()): i for i in range(4)}
    found = [documents[tuple(vector)] for vector in batch.inputs.tolist()]
    counts = Counter(tuple(found[start : start + 4]) for start in range(0, len(found), 4))
    assert len(counts) == 24
    assert sum((count - draws / 24) ** 2 / (draws / 24) for count in counts.values()) < 49.7  # chi2(23), p = .001
