"""The table of ids, against a dict."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.data import ragged
from rerank.data.ragged import RepeatedIdError, make_id_table

IDS = st.text(max_size=40) | st.text("ab\0é", max_size=20) | st.integers(0, 500).map("a_common_prefix_{}".format)
HASHES = [ragged._hash, lambda name: len(name) % 3]
"""The hash of the table, and one with which most ids collide."""


def table_of(doc_ids):
    names = [doc_id.encode() for doc_id in doc_ids]
    return make_id_table(np.frombuffer(b"".join(names), np.uint8), np.cumsum([0, *map(len, names)]))


@given(st.lists(IDS, max_size=60, unique=True), st.lists(IDS, max_size=20), st.sampled_from(HASHES))
@settings(max_examples=150, deadline=None)
def test_it_is_a_dict_of_rows(doc_ids, others, hashed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ragged, "_hash", hashed)
        table, expected = table_of(doc_ids), {doc_id: row for row, doc_id in enumerate(doc_ids)}
        assert dict(table) == expected
        assert list(table) == [table.id_of(row) for row in range(len(table))] == doc_ids
        for doc_id in [*others, "\ud800"]:
            assert table.get(doc_id) == expected.get(doc_id)


@pytest.mark.parametrize("hashed", HASHES)
@pytest.mark.parametrize("doc_ids", [["b", "a", "c", "c", "a"], ["c", "a", "d", "c"]])
def test_the_first_id_that_occurs_a_second_time_is_named(doc_ids, hashed, monkeypatch):
    monkeypatch.setattr(ragged, "_hash", hashed)
    with pytest.raises(RepeatedIdError, match="'c' occurs a second time") as caught:
        table_of(doc_ids)
    assert caught.value.row == 3
