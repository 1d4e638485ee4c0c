"""Files are read a part at a time, however far they unpack."""

import functools
import gzip
import io
import tracemalloc

import pytest

from rerank.data.queries import read_queries
from rerank.data.text_lines import blocks, lines_of
from rerank.data.trec import read_qrels, read_run
from rerank.utils.errors import UserError

MEGABYTE = 10**6


@pytest.mark.parametrize(
    ("read", "unit", "message"),
    [
        (read_run, b"\0", r"bomb:1: expected lines of `query_id Q0 .*`, got a line of more than 1,048,576 bytes"),
        (read_run, b"\n" * 1000, r"bomb: empty file"),
        (read_run, b"1 Q0 a 1 2.0 t" + b" " * 10_000 + b"\n", r"bomb:2: expected a document once in a query"),
        (read_run, b"#" * 10_000 + b"\n", r"bomb: nothing but comments"),
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
def test_blocks_and_lines_are_those_of_the_text(size):
    for text in (b"", b"\n", b"a", b"a\n", b"one\ntwo\r\n\n\nthree", b"\n\nlonger than a block\n"):
        lines = list(lines_of(io.BytesIO(text), "file", "lines", 30))
        assert lines == text.splitlines(keepends=True)
        found = list(blocks(io.BytesIO(text), "file", "lines", 30, size))
        assert b"".join(found) == text
        assert all(block.endswith(b"\n") for block in found[:-1])


def test_a_line_that_is_too_long_is_named(tmp_path, monkeypatch):
    for read in (functools.partial(blocks, size=4), lines_of):
        with pytest.raises(UserError, match=r"^file:2: expected words, got a line of more than 5 bytes$"):
            list(read(io.BytesIO(b"1234\n1234567890\n"), "file", "words", 5))
    monkeypatch.setattr("rerank.data.queries.LONGEST_LINE", 10)
    (tmp_path / "topics").write_text("q1\tdrag\nq2\tlift and drag\n")
    with pytest.raises(UserError, match=r"topics:2: expected lines of a query's id, .* of more than 10 bytes"):
        read_queries(tmp_path / "topics")
