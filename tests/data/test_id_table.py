"""The sorted table of ids, against a dict."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.data import id_table
from rerank.data.id_order import sort_strings
from rerank.data.id_table import RepeatedIdError, make_id_table, read_id_table, write_id_table

IDS = st.text(max_size=40) | st.text("ab\0é", max_size=20) | st.integers(0, 500).map("a_common_prefix_{}".format)
NUMBERS = st.integers(0, 2**40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("table")


@given(st.dictionaries(IDS, NUMBERS, max_size=60), st.lists(IDS, max_size=20), st.sampled_from([1, 3, 2**17]))
@settings(max_examples=150, deadline=None)
def test_it_is_a_dict(folder, expected, others, samples):
    for file in folder.iterdir():
        file.unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(id_table, "SAMPLES", samples)
        made = make_id_table(expected.items())
        write_id_table(folder, made)
        for table in (made, read_id_table(folder)):
            assert len(table) == len(expected)
            assert {doc_id: table[doc_id] for doc_id in expected} == expected
            assert dict(table) == expected
            assert list(table) == sorted(sorted(expected, key=str.encode), key=expected.__getitem__)
            for doc_id in others:
                assert table.get(doc_id) == expected.get(doc_id)


@given(st.lists(IDS, max_size=60))
@settings(max_examples=150, deadline=None)
def test_the_order_is_that_of_sorted_and_equal_strings_keep_theirs(ids):
    names = [doc_id.encode() for doc_id in ids]
    offsets = np.cumsum([0, *map(len, names)])
    order, repeats = sort_strings(np.frombuffer(b"".join(names), np.uint8), offsets)
    assert order.tolist() == sorted(range(len(ids)), key=lambda row: names[row])
    assert repeats.tolist() == [at > 0 and names[order[at]] == names[order[at - 1]] for at in range(len(ids))]


def test_rows_in_the_order_of_the_ids_take_no_numbers():
    doc_ids = sorted(f"d{number}" for number in range(100))
    assert make_id_table((doc_id, row) for row, doc_id in enumerate(doc_ids)).numbers is None
    assert make_id_table((doc_id, row) for row, doc_id in enumerate(reversed(doc_ids))).numbers is not None


@pytest.mark.parametrize("doc_ids", [["b", "a", "c", "c", "a"], ["a", "c", "c", "d"]])
def test_the_first_id_that_occurs_a_second_time_is_named(doc_ids):
    with pytest.raises(RepeatedIdError, match="'c' occurs a second time") as caught:
        make_id_table((doc_id, 10 * row) for row, doc_id in enumerate(doc_ids))
    assert caught.value.number == 10 * max(row for row in range(len(doc_ids)) if doc_ids[row] == "c")


def test_an_id_that_is_no_unicode_is_not_in_a_table():
    assert "\ud800" not in make_id_table([("a", 0)])


def test_it_takes_a_tenth_of_the_memory_of_a_dict():
    """1.4 MB for 100,000 ids of 6 bytes, and SAMPLES at most in memory; a dict takes about 13 MB."""
    table = make_id_table((f"{number:06}", number * 30) for number in range(100_000))
    assert table.ids.nbytes + table.offsets.nbytes + table.numbers.nbytes < 1_500_000


@pytest.mark.parametrize("name", ["ids.bin", "id_offsets.npy", "id_numbers.npy"])
def test_files_that_do_not_belong_together_are_an_error(tmp_path, name):
    write_id_table(tmp_path, make_id_table({"b": 1, "a": 2}.items()))
    other = tmp_path / "other"
    other.mkdir()
    write_id_table(other, make_id_table({"b": 1, "a": 2, "c": 9}.items()))
    (other / name).replace(tmp_path / name)
    with pytest.raises(ValueError, match="do not belong together"):
        read_id_table(tmp_path)
