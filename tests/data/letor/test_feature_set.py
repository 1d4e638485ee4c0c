"""FeatureSet: a part of it, and the ids of documents."""

from dataclasses import replace

import numpy as np
import pytest

from rerank.data.letor.feature_set import FeatureSet


@pytest.fixture
def whole() -> FeatureSet:
    values, labels = np.arange(10, dtype=np.float32).reshape(5, 2), np.arange(5, dtype=np.int32)
    return FeatureSet(values, labels, np.array([0, 2, 3]), np.array([2, 3, 5]), ("a", "b", "c"))


def test_documents_without_ids_are_numbered(whole):
    assert whole.doc_ids(2) == ("c-0", "c-1")


def test_a_part_shares_memory_and_keeps_the_order_asked_for(whole):
    part = whole.subset(["c", "a"])
    assert part.features is whole.features
    assert part.query_ids == ("c", "a")
    assert (part.starts.tolist(), part.stops.tolist()) == ([3, 0], [5, 2])
    assert part.doc_ids(1) == ("a-0", "a-1")
    with pytest.raises(ValueError, match=r"queries x: expected some of the 3 queries"):
        whole.subset(["a", "x"])


def test_ids_of_a_part(whole):
    texts = ["x\ny\n", "é\n", "\nz\n"]
    lines = np.frombuffer("".join(texts).encode(), np.uint8)
    named = replace(whole, id_lines=lines, id_starts=np.array([0, 4, 7]), id_stops=np.array([4, 7, 10]))
    assert [named.doc_ids(i) for i in range(3)] == [("x", "y"), ("é",), ("c-0", "z")]
    assert named.subset(["c"]).doc_ids(0) == ("c-0", "z")
