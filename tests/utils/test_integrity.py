"""Records of files: whatever is changed, cut, removed or damaged in a folder is named; the record itself too."""

import json
import re

import pytest

from rerank.utils.integrity import RECORD, changes_since_record, facts_of, write_record


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "deep" / "b").write_bytes(bytes(range(256)) * 100)
    write_record(tmp_path)
    return tmp_path


def test_what_was_written_holds_and_new_files_do_not_count(folder):
    assert changes_since_record(folder) == []
    (folder / "c").write_text("new")
    assert changes_since_record(folder) == []
    assert list(json.loads((folder / RECORD).read_text())) == ["a", "deep/b"]


def test_the_hash_is_that_of_the_specification(tmp_path):
    (tmp_path / "empty").touch()
    assert facts_of(tmp_path / "empty") == {"bytes": 0, "xxh3_128": "99aa06d3014798d86001c324468d497f"}


def test_every_change_is_named(folder):
    content = bytearray((folder / "deep" / "b").read_bytes())
    for bit in (0, 100_000, len(content) * 8 - 1):
        content[bit // 8] ^= 1 << bit % 8
        (folder / "deep" / "b").write_bytes(content)
        (line,) = changes_since_record(folder)
        assert line.startswith("deep/b: expected XXH3 ")
        content[bit // 8] ^= 1 << bit % 8
    (folder / "deep" / "b").write_bytes(content[:-1])
    (changed,) = changes_since_record(folder)
    assert re.fullmatch(r"deep/b: expected XXH3 \w{12}… of 25600 bytes, found XXH3 \w{12}… of 25599 bytes", changed)
    (folder / "a").unlink()
    assert changes_since_record(folder) == [
        "a: expected a file, found none",
        changed,
    ]


@pytest.mark.parametrize("content", ["", "{}", "[]", "null", '{"a": 1}', "[" * 100_000, '{"a": {"bytes": 0}}'])
def test_a_damaged_record_is_no_record(folder, content):
    (folder / RECORD).write_text(content)
    (line,) = changes_since_record(folder)
    assert line.startswith("files.json: ")
