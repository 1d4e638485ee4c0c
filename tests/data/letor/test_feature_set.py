"""FeatureSet: a part of it, and the ids of documents."""

from dataclasses import replace

import numpy as np
import pytest

from rerank.data.letor.feature_set import FeatureSet


def test_a_part_shares_memory_and_keeps_the_order_asked_for():
    values, labels = np.arange(10, dtype=np.float32).reshape(5, 2), np.arange(5, dtype=np.int32)
    whole = FeatureSet(values, labels, np.array([0, 2, 3]), np.array([2, 3, 5]), ("a", "b", "c"))
    part = whole.subset(["c", "a"])
    assert part.features is whole.features
    assert part.qrels() == {"c": {"c-0": 3, "c-1": 4}, "a": {"a-0": 0, "a-1": 1}}
    named = replace(whole, ids=np.array([text.encode() for text in ("x", "y", "é", "", "z")]))
    assert named.subset(["b", "c"]).qrels() == {"b": {"é": 2}, "c": {"c-0": 3, "z": 4}}
    with pytest.raises(ValueError, match=r"queries x: expected some of the 3 queries"):
        whole.subset(["a", "x"])
