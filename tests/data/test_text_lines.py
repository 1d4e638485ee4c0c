"""Files are read a part at a time, however far they unpack; a line that is no JSON object is named."""

import gzip
import json
import tracemalloc

import pytest

from rerank.data import text_lines
from rerank.data.queries import read_queries
from rerank.data.runs import read_qrels, read_run
from rerank.data.text_lines import read_blocks, read_lines, read_objects
from rerank.utils.errors import UserError

MEGABYTE = 10**6


@pytest.mark.parametrize(
    ("read", "unit", "message"),
    [
        (read_run, b"\0", r"bomb:1: expected lines of `query_id Q0 .*`, got a line of more than 1,048,576 bytes"),
        (read_run, b"\n" * 1000, r"bomb: empty file"),
        (
            read_run,
            b"1 Q0 a 1 2.0 t" + b" " * 10_000 + b"\n",
            r"bomb:2: expected one line of document a for query 1, got 2\.0 and 2\.0",
        ),
        (read_qrels, b" ", r"bomb:1: expected lines of `query_id 0 .*`, got a line of more than 1,048,576 bytes"),
        (read_qrels, b"1 0 a 1" + b" " * 10_000 + b"\n", None),
        (read_queries, b" " * 10_000 + b"\n", r"bomb: has no query"),
        (read_queries, b"q1\t" + b"x" * 10_000 + b"\n", r"bomb:2: the query q1 occurs a second time"),
    ],
)
def test_a_file_that_unpacks_to_fifty_megabytes_is_read_in_three(tmp_path, read, unit, message):
    path = tmp_path / "bomb"
    block = unit * (MEGABYTE // len(unit))
    with gzip.open(path, "wb", compresslevel=1) as out:
        for _ in range(50):
            out.write(block)
    tracemalloc.start()
    try:
        if message is None:
            assert read(path) == {"1": {"a": 1}}
        else:
            with pytest.raises(UserError, match=message):
                read(path)
        assert tracemalloc.get_traced_memory()[1] < 3 * MEGABYTE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_blocks_and_lines_are_those_of_the_text(tmp_path, size):
    for text in (b"", b"\n", b"a", b"a\n", b"one\ntwo\r\n\n\nthree", b"\n\nlonger than a block\n"):
        path = tmp_path / "file"
        path.write_bytes(text)
        lines = [(f"{path}:{number}", line) for number, line in enumerate(text.splitlines(keepends=True), 1)]
        found = list(read_lines(path, "lines"))
        assert [(place, line) for place, _, line in found] == [line for line in lines if line[1].strip()]
        assert all(text[offset:].startswith(line) for _, offset, line in found)
        blocks = list(read_blocks(path, "lines", 30, size))
        assert b"".join(blocks) == text
        assert all(block.endswith(b"\n") for block in blocks[:-1])


def test_a_line_that_is_too_long_is_named(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"1234\n1234567890\n")
    with pytest.raises(UserError, match=r"file:2: expected words, got a line of more than 5 bytes$"):
        list(read_blocks(path, "words", longest=5, size=4))


def test_a_gzipped_line_and_a_file_that_unpack_without_end_are_refused_in_little_memory(tmp_path, monkeypatch):
    for name, block in (("line", b"x" * MEGABYTE), ("lines", (b"x" * 99 + b"\n") * (MEGABYTE // 100))):
        with gzip.open(tmp_path / name, "wb", compresslevel=9) as out:
            for _ in range(12):
                out.write(block)
    monkeypatch.setattr(text_lines, "LONGEST_LINE", MEGABYTE)
    monkeypatch.setattr(text_lines, "MOST_UNPACKED", MEGABYTE)
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=r"line:1: expected lines, got a line of more than 1,000,000 bytes$"):
            list(read_lines(tmp_path / "line", "lines"))
        for read in (read_lines, read_blocks):
            with pytest.raises(
                UserError, match=r"lines: unpacks to over 200 times its size, .* unpack it with gunzip$"
            ):
                sum(1 for _ in read(tmp_path / "lines", "lines"))
        assert tracemalloc.get_traced_memory()[1] < 4 * MEGABYTE
    finally:
        tracemalloc.stop()


EXPECTED = "an object with id"
LINES = [b'\xef\xbb\xbf{"id": "caf\xc3\xa9"}\r\n', b"\n", b' {"id": 2} \n', b" \r\n", b'{"id": [3]}']


@pytest.mark.parametrize("packed", [False, True])
def test_objects_have_the_place_and_the_offset_of_their_line(tmp_path, packed):
    path, text = tmp_path / "lines.jsonl", b"".join(LINES)
    path.write_bytes(gzip.compress(text) if packed else text)
    found = list(read_objects(path, EXPECTED))
    offsets = [sum(map(len, LINES[:number])) for number in (0, 2, 4)]
    places = [f"{path}:{number}" for number in (1, 3, 5)]
    assert found == list(zip(places, offsets, [{"id": "café"}, {"id": 2}, {"id": [3]}], strict=True))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", r"not JSON \(.*\); expected an object with id"),
        (b'{"id": "cut', r"not JSON \(.*\); expected an object with id"),
        (b'{"id": "\xff"}', r"not JSON \('utf-8' codec .*\); expected an object with id"),
        (b"[" * 100_000, r"not JSON that can be read \(too many brackets in each other\)"),
        (b'{"id": "\\ud800, half a pair"}', r"not JSON \(.*surrogate pair"),
        (b"[1, 2]", r"expected an object with id, got \[1, 2\]"),
        (json.dumps(["x" * 1000]).encode(), r"expected an object with id, got \['xxx"),
    ],
)
def test_a_line_that_is_no_object_is_named(tmp_path, line, message):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"id": 1}\n\n' + line + b"\n")
    with pytest.raises(UserError, match=rf"lines.jsonl:3: {message}") as said:
        list(read_objects(path, EXPECTED))
    assert "\n" not in str(said.value)
    assert len(str(said.value)) < 300 + len(str(path))


@pytest.mark.parametrize("name", ["nowhere.jsonl", "."])
def test_a_file_that_cannot_be_read_is_one_line(tmp_path, name):
    with pytest.raises(UserError, match=r"cannot be read: (No such file|Is a dir).*; expected an object with id$"):
        list(read_objects(tmp_path / name, EXPECTED))
