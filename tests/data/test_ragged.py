"""The store of documents' values: what is written is read, after an interrupt too, and damage is found."""

import contextlib
import resource

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.data import arrow, ragged
from rerank.data.ragged import RepeatedIdError, make_id_table, open_ragged, write_array
from rerank.utils import integrity
from rerank.utils.errors import UserError

DOCUMENTS = {f"d{number:03}": np.arange(number % 7 * 2, dtype=np.float32) + number for number in range(300)}
FILES = {
    "values.bin", "offsets.npy", "numbers.npy", "ids.bin", "id_offsets.npy", "id_hashes.npy", "id_rows.npy",
    "files.json",
}  # fmt: skip


def opened(folder, documents=DOCUMENTS, stop=None, added=None):
    """A store of these documents of two columns; stopped before document `stop`."""

    def fill(writer):
        for place, (doc_id, values) in enumerate(
            list(documents.items())[writer.unfinished.done :], writer.unfinished.done
        ):
            if doc_id == stop:
                raise KeyboardInterrupt
            writer.add(doc_id, values.reshape(-1, 2), -place)
            writer.unfinished.finish_item()
            if added is not None:
                added.append(doc_id)

    return open_ragged(folder / "store", "vectors", np.float32, fill)


def contents(folder):
    return {path.name: path.read_bytes() for path in (folder / "store").iterdir()}


@pytest.mark.parametrize("order", [1, -1])
def test_every_document_has_its_values_its_number_and_its_row(tmp_path, order, monkeypatch):
    monkeypatch.setattr(arrow, "AT_ONCE", 7)
    documents = dict(list(DOCUMENTS.items())[::order])
    store = opened(tmp_path, documents)
    values = store.values.reshape(-1, 2)
    for row, (doc_id, expected) in enumerate(documents.items()):
        assert (store.ids[doc_id], store.ids.id_of(row), store.numbers[row]) == (row, doc_id, -row)
        assert values[store.offsets[row] : store.offsets[row + 1]].ravel().tolist() == expected.tolist()
    assert list(store.ids) == list(documents)


def test_a_store_without_documents_or_values_opens(tmp_path):
    assert len(opened(tmp_path / "none", {}).ids) == 0
    store = opened(tmp_path / "empty", {"a": np.zeros(0, np.float32)})
    assert (dict(store.ids), store.offsets.tolist(), len(store.values)) == ({"a": 0}, [0, 0], 0)


def test_an_interrupted_store_goes_on_and_is_the_same_byte_for_byte(tmp_path, monkeypatch):
    opened(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        opened(tmp_path / "cut", stop="d150")
    assert [path.name for path in (tmp_path / "cut").iterdir()] == ["vectors.lock"]  # nothing was saved yet
    monkeypatch.setattr(integrity, "SECONDS_BETWEEN_SAVES", 0.0)
    for stop in ("d150", "d280"):
        with pytest.raises(KeyboardInterrupt):
            opened(tmp_path / "cut", stop=stop)
    opened(tmp_path / "cut", added=(added := []))
    assert added == list(DOCUMENTS)[280:]
    opened(tmp_path / "cut", added=added)
    assert len(added) == 20
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")
    assert set(contents(tmp_path / "whole")) == FILES


def test_a_repeated_id_is_named_again_after_the_same_command(tmp_path, monkeypatch):
    monkeypatch.setattr(ragged, "_hash", len)

    def fill(writer):
        for doc_id in ["a", "b", "a"][writer.unfinished.done :]:
            writer.add(doc_id, np.zeros(1))
            writer.unfinished.finish_item()

    for _ in range(2):
        with pytest.raises(RepeatedIdError, match="'a' occurs a second time"):
            open_ragged(tmp_path / "store", "tokens", np.int32, fill)


@contextlib.contextmanager
def files_of_at_most(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_takes_a_part_of_the_values_or_of_an_array_is_an_error(tmp_path):
    """The C library keeps the last bytes of a file until it is closed."""
    documents = {"a": np.zeros(5000, np.float32)}
    with files_of_at_most(19_999), pytest.raises(UserError, match="File too large"):
        opened(tmp_path, documents)
    assert [path.name for path in tmp_path.iterdir()] == ["vectors.lock"]
    with files_of_at_most(20_000):
        assert len(opened(tmp_path, documents).values) == 5000
    with files_of_at_most(4157), pytest.raises(OSError, match="File too large"):
        write_array(tmp_path / "array.npy", np.arange(520))


DAMAGES = {
    "with a bit flipped": lambda file: file.write_bytes(file.read_bytes()[:-1] + bytes([file.read_bytes()[-1] ^ 1])),
    "removed": lambda file: file.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", sorted(FILES))
def test_any_damage_is_one_line(tmp_path, name, damage):
    opened(tmp_path)
    DAMAGES[damage](tmp_path / "store" / name)
    with pytest.raises(
        UserError, match=rf"store: the vectors cannot be read \(.*{name}.*\); remove the folder"
    ) as said:
        opened(tmp_path)
    assert "\n" not in str(said.value)


IDS = st.text(max_size=40) | st.text("ab\0é", max_size=20) | st.integers(0, 500).map("a_common_prefix_{}".format)
HASHES = [ragged._hash, lambda name: len(name) % 3]
"""The hash of the table, and one with which most ids collide."""


def table_of(doc_ids):
    return make_id_table(pa.array(doc_ids, pa.large_string()))


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
    assert caught.value.args[1] == 3
