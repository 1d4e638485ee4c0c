"""Hashes of large files are kept, and computed again when the file changes."""

import hashlib
import os

import pytest

from rerank.utils import kept_hashes
from rerank.utils.files import file_hash
from rerank.utils.kept_hashes import kept_hash


@pytest.fixture
def hashed(monkeypatch, tmp_path):
    """The files that were read to be hashed; every file is large enough to keep its hash."""
    read = []

    def count(path):
        read.append(path.name)
        return file_hash(path)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_hashes, "LARGE", 1)
    monkeypatch.setattr(kept_hashes, "file_hash", count)
    return read


def file_of(folder, content="some text"):
    folder.mkdir(exist_ok=True)
    path = folder / "corpus.jsonl"
    path.write_text(content)
    return path


def sha256(content):
    return hashlib.sha256(content.encode()).hexdigest()


def test_a_file_is_read_once_while_it_stays(hashed, tmp_path):
    path = file_of(tmp_path / "c")
    assert kept_hash(path) == kept_hash(path) == sha256("some text")
    assert hashed == ["corpus.jsonl"]
    assert [file.name for file in path.parent.iterdir()] == ["corpus.jsonl"]


def test_it_is_read_again_when_its_size_or_a_time_changes(hashed, tmp_path):
    path = file_of(tmp_path / "c")
    kept_hash(path)
    path.write_text("more text than before")
    assert kept_hash(path) == sha256("more text than before")
    status = path.stat()
    path.write_text("same size, other text"[: status.st_size])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as rsync and cp -p set it
    assert path.stat().st_mtime_ns == status.st_mtime_ns
    assert kept_hash(path) == sha256("same size, other text")
    os.utime(path, ns=(0, 0))
    assert kept_hash(path) == sha256("same size, other text")
    assert len(hashed) == 4


@pytest.mark.parametrize("content", ["", "[]", '{"bytes": 9}', "\ud800"])
def test_a_damaged_record_is_written_again(hashed, tmp_path, content):
    path = file_of(tmp_path / "c")
    kept_hash(path)
    (record,) = records(tmp_path)
    record.write_bytes(content.encode(errors="surrogatepass"))
    assert kept_hash(path) == kept_hash(path) == sha256("some text")
    assert len(hashed) == 2


def test_a_cache_that_cannot_be_written_costs_time_alone(hashed, tmp_path):
    path = file_of(tmp_path / "c")
    (tmp_path / "cache").touch()
    assert kept_hash(path) == kept_hash(path) == sha256("some text")
    assert len(hashed) == 2


def test_nothing_is_kept_of_a_small_file(hashed, tmp_path, monkeypatch):
    monkeypatch.setattr(kept_hashes, "LARGE", 10)
    kept_hash(file_of(tmp_path / "c"))
    assert not records(tmp_path)


def records(folder):
    return list((folder / "cache" / "rerank" / "hashes").glob("*.json"))
