"""Files with a JSON object on each line: places, offsets, and what is no object."""

import gzip
import json

import pytest

from rerank.data.json_lines import read_objects, text_under
from rerank.utils.errors import UserError

EXPECTED = "an object with id"
LINES = [b'\xef\xbb\xbf{"id": "caf\xc3\xa9"}\r\n', b"\n", b' {"id": 2} \n', b" \r\n", b'{"id": [3]}']


@pytest.mark.parametrize("packed", [False, True])
def test_objects_have_the_place_and_the_offset_of_their_line_and_reading_begins_at_any(tmp_path, packed):
    path, text = tmp_path / "lines.jsonl", b"".join(LINES)
    path.write_bytes(gzip.compress(text) if packed else text)
    found = list(read_objects(path, EXPECTED))
    offsets = [sum(map(len, LINES[:number])) for number in (0, 2, 4)]
    places = [f"{path}:{number}" for number in (1, 3, 5)]
    assert found == list(zip(places, offsets, [{"id": "café"}, {"id": 2}, {"id": [3]}], strict=True))
    if not packed:
        for number, offset in enumerate(offsets):
            assert list(read_objects(path, EXPECTED, offset)) == found[number:]


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
        (b'{"id": "' + b"x" * 200_000 + b'"}', r"expected an object with id, got a line of more than 200,000 bytes"),
    ],
)
def test_a_line_that_is_no_object_is_named(tmp_path, line, message, monkeypatch):
    monkeypatch.setattr("rerank.data.json_lines.LONGEST_TEXT", 200_000)
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


def test_the_text_is_that_of_the_first_key(tmp_path):
    assert text_under({"b": "x", "a": "y"}, ("a", "b"), "f:1") == "y"
    for record, got in (({"b": "x", "a": None}, "None"), ({"c": 1, "x" * 900: 1}, r"none \(the keys are \['c', 'xxx")):
        with pytest.raises(UserError, match=rf"^f:1: expected a text under 'a' or 'b', got {got}") as said:
            text_under(record, ("a", "b"), "f:1")
        assert len(str(said.value)) < 300
