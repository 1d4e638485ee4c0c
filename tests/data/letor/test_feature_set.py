"""FeatureSet: a part of it, and the ids of documents."""

from dataclasses import replace

import numpy as np
import pytest

from rerank.data.letor.feature_set import FeatureSet, join
from rerank.data.letor.store import build_store, open_store
from tests.support.small_features import write_part


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


def test_joined_sets_have_the_documents_of_each(tmp_path):
    write_part(tmp_path / "named.txt", [1, 2, 3])
    write_part(tmp_path / "more.txt", [4, 5])
    lines = (tmp_path / "more.txt").read_text().splitlines()
    (tmp_path / "unnamed.txt").write_text("".join(line.partition("#")[0] + "\n" for line in lines))
    sets = []
    for name in ("named", "unnamed"):
        store = build_store(tmp_path / f"{name}.txt", tmp_path / "cache")
        sets.append(open_store(store, store.facts["width"]))
    sets[0] = sets[0].subset(["3", "1"])
    whole = join(sets)
    assert whole.query_ids == ("3", "1", "4", "5")
    assert whole.qrels() == sets[0].qrels() | sets[1].qrels()
    for part in sets:
        for query_id in part.query_ids:
            of_part, of_whole = part.subset([query_id]), whole.subset([query_id])
            rows = [slice(one.starts[0], one.stops[0]) for one in (of_part, of_whole)]
            assert (of_part.features[rows[0]] == of_whole.features[rows[1]]).all()
    assert join([sets[1]]).qrels() == sets[1].qrels()
