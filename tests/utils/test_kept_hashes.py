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
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_hashes, "LARGE", 1)
    monkeypatch.setattr(kept_hashes, "file_hash", lambda path: read.append(path.name) or file_hash(path))
    return read


@pytest.fixture
def path(tmp_path):
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "corpus.jsonl").write_text("some text")
    return tmp_path / "c" / "corpus.jsonl"


def sha256(content):
    return hashlib.sha256(content.encode()).hexdigest()


def records(folder):
    return list((folder / "cache" / "rerank" / "hashes").glob("*.json"))


def test_a_large_file_is_read_once_while_it_stays(hashed, path, tmp_path, monkeypatch):
    assert kept_hash(path) == kept_hash(path) == sha256("some text")
    assert hashed == ["corpus.jsonl"]
    assert list(path.parent.iterdir()) == [path]
    (record,) = records(tmp_path)
    record.unlink()
    monkeypatch.setattr(kept_hashes, "LARGE", 10)
    kept_hash(path)
    assert not records(tmp_path)


def test_it_is_read_again_when_its_size_or_a_time_changes(hashed, path):
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
def test_a_damaged_record_is_written_again(hashed, path, tmp_path, content):
    kept_hash(path)
    (record,) = records(tmp_path)
    record.write_bytes(content.encode(errors="surrogatepass"))
    assert kept_hash(path) == kept_hash(path) == sha256("some text")
    assert len(hashed) == 2


def test_a_cache_that_cannot_be_written_costs_time_alone(hashed, path, tmp_path):
    (tmp_path / "cache").touch()
    assert kept_hash(path) == kept_hash(path) == sha256("some text")
    assert len(hashed) == 2
