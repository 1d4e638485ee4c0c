"""The store of arrays by id: what is written is read, after an interrupt too, and damage is found."""

import contextlib
import resource
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.data import id_table as module
from rerank.data import store as store_module
from rerank.data.id_table import RepeatedIdError
from rerank.data.store import StoreWriter, file_of, map_items, open_store
from rerank.utils.errors import UserError
from tests.support.id_tables import id_table
from tests.support.paths import ROOT
from tests.support.patience import SECONDS

COLUMNS = {"vectors": np.float32, "number": np.int64}
DOCUMENTS = {f"d{number:03}": np.arange(number % 7 * 2, dtype=np.float32) + number for number in range(300)}
FILES = {"items.bin", "ids.bin", "vectors.bin", "number.bin", "index.bin", "files.json"}
WRITE = """
import os, signal, sys
from pathlib import Path
from rerank.data import store
store.SECONDS_BETWEEN_FLUSHES = 0.0
def fill(writer):
    for number in range(writer.items, 60):
        if number == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        writer.add(str(number), [number] * (number % 3))
        print(number)
store.open_store(Path(sys.argv[1]) / "store", "vectors", {"vectors": "int32"}, fill)
"""


def opened(folder, documents=DOCUMENTS, stop=None, added=None):
    """A store of these documents; stopped before document `stop`."""

    def fill(writer):
        for place, (doc_id, values) in enumerate(list(documents.items())[writer.items :], writer.items):
            if doc_id == stop:
                raise KeyboardInterrupt
            writer.add(doc_id, values.reshape(-1, 2), [-place])
            if added is not None:
                added.append(doc_id)

    return open_store(folder / "store", "vectors", COLUMNS, fill)


def contents(folder):
    return {path.name: path.read_bytes() for path in (folder / "store").iterdir()}


@pytest.mark.parametrize("order", [1, -1])
def test_every_document_has_its_arrays_and_its_row(tmp_path, order):
    documents = dict(list(DOCUMENTS.items())[::order])
    store = opened(tmp_path, documents)
    for row, (doc_id, expected) in enumerate(documents.items()):
        assert (store.ids[doc_id], store.id_of(row), store.values["number"][row]) == (row, doc_id, -row)
        assert store.array("vectors", row).tolist() == expected.tolist()
        assert store.is_whole(row)
    assert list(store.ids) == list(documents)


def test_a_store_without_documents_or_values_opens(tmp_path):
    assert len(opened(tmp_path / "none", {}).ids) == 0
    store = opened(tmp_path / "empty", {"a": np.zeros(0, np.float32)})
    assert (dict(store.ids), store.offsets("vectors").tolist(), len(store.values["vectors"])) == ({"a": 0}, [0, 0], 0)


def test_an_interrupted_store_goes_on_and_is_the_same_byte_for_byte(tmp_path):
    opened(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        opened(tmp_path / "cut", stop="d000")
    assert [path.name for path in (tmp_path / "cut").iterdir()] == ["vectors.lock"]  # nothing was written yet
    for stop in ("d150", "d280"):
        with pytest.raises(KeyboardInterrupt):
            opened(tmp_path / "cut", stop=stop)
    opened(tmp_path / "cut", added=(added := []))
    assert added == list(DOCUMENTS)[280:]
    opened(tmp_path / "cut", added=added)
    assert len(added) == 20
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")
    assert set(contents(tmp_path / "whole")) == FILES


def test_a_killed_process_loses_what_came_after_the_last_flush(tmp_path):
    def written(folder, at):
        command = [sys.executable, "-c", WRITE, str(tmp_path / folder), str(at)]
        done = subprocess.run(command, cwd=ROOT, timeout=SECONDS, stdout=subprocess.PIPE)
        assert done.returncode == (-signal.SIGKILL if at >= 0 else 0)
        return [int(line) for line in done.stdout.split()]

    for at in (40, 41):
        written("killed", at)
        assert len(map_items(tmp_path / "killed" / "store", {"vectors": np.int32})) == at
    assert written("killed", -1) == list(range(41, 60))
    written("whole", -1)
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def changed(name, change):
    """What changes the bytes of a file of a store."""
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


CUTS = {
    "a part of an item": changed("vectors.bin", lambda content: content + b"torn"),
    "half of a row": changed("items.bin", lambda content: content + b"torn"),
    "the values cut": changed("vectors.bin", lambda content: content[:-9]),
    "another byte": changed("vectors.bin", lambda content: b"x" + content[1:]),
    "another row": changed("items.bin", lambda content: content[:-8] + b"another!"),
    "a file removed": lambda folder: (folder / "ids.bin").unlink(),
    "no file of rows": lambda folder: (folder / "items.bin").unlink(),
}


@pytest.mark.parametrize("cut", CUTS)
def test_unfinished_work_that_was_cut_or_damaged_is_done_again_from_there(tmp_path, cut):
    opened(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        opened(tmp_path / "cut", stop="d150")
    CUTS[cut](tmp_path / "cut" / "store")
    opened(tmp_path / "cut")
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


@pytest.mark.parametrize("order", [1, -1])
def test_a_copy_that_was_made_beside_its_writer_goes_on_after_its_whole_items(tmp_path, monkeypatch, order):
    monkeypatch.setattr(store_module, "SECONDS_BETWEEN_FLUSHES", 0.0)
    (tmp_path / "copy/store").mkdir(parents=True)

    class Copying(list):
        """Copies another file of the store after each fifty documents."""

        def append(self, doc_id):
            files = ["items.bin", "ids.bin", "vectors.bin", "number.bin"][::order]
            if int(doc_id[1:]) in range(50, 250, 50):
                name = files[int(doc_id[1:]) // 50 - 1]
                shutil.copy(tmp_path / "whole/store" / name, tmp_path / "copy/store" / name)

    opened(tmp_path / "whole", added=Copying())
    opened(tmp_path / "copy", added=(added := []))
    assert added == list(DOCUMENTS)[51:]
    assert contents(tmp_path / "copy") == contents(tmp_path / "whole")


def test_a_repeated_id_is_named_again_after_the_same_command(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_hash_of_id", len)

    def fill(writer):
        for doc_id in ["a", "b", "a"][writer.items :]:
            writer.add(doc_id, np.zeros(1), [0])

    for _ in range(2):
        with pytest.raises(RepeatedIdError, match="'a' occurs a second time"):
            open_store(tmp_path / "store", "tokens", COLUMNS, fill)


def test_nothing_is_written_through_a_link(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "a user's").write_text("kept")
    file_of(tmp_path / "store", "vectors").symlink_to(tmp_path / "a user's")
    with pytest.raises(UserError, match=r"vectors.bin: is a link; expected a file"):
        StoreWriter(tmp_path / "store", COLUMNS)
    assert (tmp_path / "a user's").read_text() == "kept"


@contextlib.contextmanager
def files_of_at_most(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_takes_a_part_of_the_values_is_an_error(tmp_path):
    """The C library keeps the last bytes of a file until it is closed."""
    documents = {"a": np.zeros(5000, np.float32)}
    with files_of_at_most(19_999), pytest.raises(UserError, match="File too large"):
        opened(tmp_path, documents)
    assert [path.name for path in tmp_path.iterdir()] == ["vectors.lock"]
    with files_of_at_most(20_000):
        assert len(opened(tmp_path, documents).values["vectors"]) == 5000


DAMAGES = {
    "with a bit flipped": lambda file: file.write_bytes(file.read_bytes()[:-1] + bytes([file.read_bytes()[-1] ^ 1])),
    "removed": lambda file: file.unlink(),
}


def test_a_store_that_has_lost_its_record_is_finished_again(tmp_path):
    opened(tmp_path)
    before = contents(tmp_path)
    (tmp_path / "store" / "files.json").unlink()
    opened(tmp_path, added=(added := []))
    assert (added, contents(tmp_path)) == ([], before)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", sorted(FILES))
def test_any_other_damage_is_one_line(tmp_path, name, damage):
    if (name, damage) == ("files.json", "removed"):
        return
    opened(tmp_path)
    DAMAGES[damage](tmp_path / "store" / name)
    with pytest.raises(
        UserError, match=rf"store: the vectors cannot be read \(.*{name}.*\); remove the folder"
    ) as said:
        opened(tmp_path)
    assert "\n" not in str(said.value)


IDS = st.text(max_size=40) | st.text("ab\0é", max_size=20) | st.integers(0, 500).map("a_common_prefix_{}".format)
HASHES = [module._hash_of_id, lambda name: len(name) % 3]
"""The hash of the table, and one with which most ids collide."""


@given(st.lists(IDS, max_size=60, unique=True), st.lists(IDS, max_size=20), st.sampled_from(HASHES))
@settings(max_examples=150, deadline=None)
def test_it_is_a_dict_of_rows(doc_ids, others, hashed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_hash_of_id", hashed)
        table, expected = id_table(doc_ids), {doc_id: row for row, doc_id in enumerate(doc_ids)}
        assert dict(table) == expected
        assert list(table) == [table.id_of(row) for row in range(len(table))] == doc_ids
        for doc_id in [*others, "\ud800"]:
            assert table.get(doc_id) == expected.get(doc_id)


@pytest.mark.parametrize("hashed", HASHES)
@pytest.mark.parametrize("doc_ids", [["b", "a", "c", "c", "a"], ["c", "a", "d", "c"]])
def test_the_first_id_that_occurs_a_second_time_is_named(doc_ids, hashed, monkeypatch):
    monkeypatch.setattr(module, "_hash_of_id", hashed)
    with pytest.raises(RepeatedIdError, match="'c' occurs a second time") as caught:
        id_table(doc_ids)
    assert caught.value.args[1] == 3
