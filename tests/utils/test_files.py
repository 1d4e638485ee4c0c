"""Nothing is ever half there."""

import errno
import hashlib
import os
import shutil
import stat

import pytest

from rerank.utils import files
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, check_new_folder, file_hash, kept_hash, remove, short_hash


def fill(place, folder, text):
    """Writes a file, or a folder with one file, which is returned."""
    if folder:
        place.mkdir(exist_ok=True)
    file = place / "file" if folder else place
    file.write_text(text)
    return file


def write_half(target, folder, error):
    with atomic_write(target) as tmp:
        fill(tmp, folder, "half")
        raise error


@pytest.mark.parametrize("folder", [False, True])
def test_a_block_that_ends_well_takes_the_place(tmp_path, folder):
    target = tmp_path / "new" / "target"
    for text in ("first", "second"):
        with atomic_write(target) as tmp:
            fill(tmp, folder, text)
        assert (target / "file" if folder else target).read_text() == text
    assert list(target.parent.iterdir()) == [target]


def test_an_interrupt_of_the_clean_up_leaves_nothing(tmp_path, monkeypatch):
    """As a worker of a sweep is interrupted between two files."""
    remove_tree, calls = shutil.rmtree, []

    def interrupted(*given, **more):
        calls.append(given)
        if len(calls) == 1:
            raise KeyboardInterrupt
        remove_tree(*given, **more)

    monkeypatch.setattr(files.shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt), atomic_write(tmp_path / "log") as part:
        part.write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert len(calls) == 2


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("folder", [False, True])
def test_a_block_that_fails_leaves_what_was_there(tmp_path, failure, folder):
    written = fill(tmp_path / "target", folder, "before")
    with pytest.raises(failure):
        write_half(tmp_path / "target", folder, failure())
    assert written.read_text() == "before"
    assert list(tmp_path.iterdir()) == [tmp_path / "target"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        shutil.Error([("from/a", "to/a", "[Errno 28] No space left on device: 'to/a'")]),  # of shutil.copytree
        RuntimeError("I/O error: No space left on device (os error 28)"),  # as of safetensors
    ],
)
def test_a_full_disk_is_one_clear_line_and_loses_nothing(tmp_path, error):
    (tmp_path / "target").write_text("before")

    line = "target: cannot be written: No space left on device; what was there before is kept"
    with pytest.raises(UserError, match=line):
        write_half(tmp_path / "target", False, error)
    assert (tmp_path / "target").read_text() == "before"
    assert list(tmp_path.iterdir()) == [tmp_path / "target"]


@pytest.mark.parametrize("folder", [False, True])
def test_the_umask_decides_who_may_read_what_another_library_wrote_for_its_user_alone(tmp_path, folder):
    before = os.umask(0o027)
    try:
        with atomic_write(tmp_path / "target") as tmp:
            fill(tmp, folder, "weights").chmod(0o600)
    finally:
        os.umask(before)
    written = tmp_path / "target" / "file" if folder else tmp_path / "target"
    assert stat.S_IMODE(written.stat().st_mode) == 0o640


def test_a_new_folder_is_none_or_an_empty_one(tmp_path, monkeypatch):
    taken = tmp_path / "taken"
    fill(taken, True, "something")
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "new", tmp_path / "empty"):
        check_new_folder(place)
    for place in (taken, taken / "file"):
        with pytest.raises(UserError, match=f"--out {place}: already exists; expected a new folder to write"):
            check_new_folder(place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "taken"]
    monkeypatch.chdir(tmp_path / "empty")
    for place in (".", "/"):  # nothing can take their place
        with pytest.raises(UserError, match=f"--out {place}: is a folder in use; expected the name of a new file"):
            check_new_folder(place)


def test_a_file_a_link_and_a_folder_are_removed_and_not_what_a_link_leads_to(tmp_path):
    kept = fill(tmp_path / "kept", True, "something")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    fill(tmp_path / "folder", True, "else")
    fill(tmp_path / "file", False, "else")
    for name in ("link", "folder", "file", "none"):
        remove(tmp_path / name)
    assert list(tmp_path.iterdir()) == [kept.parent]
    assert kept.read_text() == "something"


def test_hashes_tell_parts_apart():
    assert short_hash("ab", "c") != short_hash("a", "bc")
    assert short_hash("a", 1) == short_hash("a", "1")
    assert len(short_hash("a")) == 16


def test_a_large_file_is_read_once_while_it_stays(tmp_path, monkeypatch):
    """It is read again when its content changes, under the same size and time too, and if the record is damaged."""
    read = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "LARGE", 1)
    monkeypatch.setattr(files, "file_hash", lambda path: read.append(path) or file_hash(path))
    path = tmp_path / "corpus.jsonl"
    path.write_text("some text")
    assert kept_hash(path) == kept_hash(path) == hashlib.sha256(b"some text").hexdigest()
    assert len(read) == 1
    status = path.stat()
    path.write_text("text some")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as rsync and cp -p set it
    assert kept_hash(path) == kept_hash(path) == hashlib.sha256(b"text some").hexdigest()
    assert len(read) == 2
    (record,) = (tmp_path / "cache" / "rerank" / "hashes").glob("*.json")
    record.write_text('{"bytes": 9}')
    kept_hash(path)
    assert len(read) == 3
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "cache").touch()  # a cache that cannot be written costs time alone
    assert kept_hash(path) == kept_hash(path)
    assert len(read) == 5
