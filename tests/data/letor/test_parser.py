"""Text -> arrays: the values of well-formed lines, and the first line that is wrong."""

import ast
import random
import re

import numpy as np
import pytest

from rerank.data.letor.parser import BLANKS, LineError, Lines, parse


def read(text: str | bytes) -> Lines:
    lines = parse(text.encode() if isinstance(text, str) else text)
    assert isinstance(lines, Lines), lines
    return lines


def test_every_part_of_a_line():
    lines = read(
        "2 qid:a 1:0.5 3:-1e-3 #docid = GX-1 inc = 1\n"
        "\n"
        "# a comment line, docid = no\n"
        "0 qid:a 2:7 # nothing\r\n"
        "+1.0\tqid:é  1:.25  3:+4. \t#docid=x#y\n"
        "-1 qid:é\n"
    )
    assert lines.length == 6
    assert lines.numbers.tolist() == [0, 3, 4, 5]
    assert lines.labels.tolist() == [2, 0, 1, -1]
    assert lines.queries == [(0, "a"), (2, "é")]
    assert lines.doc_ids == [b"GX-1", b"", b"x#y", b""]
    assert lines.sizes.tolist() == [2, 1, 2, 0]
    assert lines.features.tolist() == [1, 3, 2, 1, 3]
    assert lines.values.dtype == np.float32
    assert lines.values.tolist() == np.float32([0.5, -1e-3, 7, 0.25, 4]).tolist()


LABEL, QUERY, FEATURE, ID = "a whole number of at most 9", "qid:QUERY after", "index:value with", "a document id of at"
PAIRS = '1 1: 1:2:3 :2 1:a 1:0x10 0x1:10 1:1_0 1:1.2.3 1:1-2 1:1e 1.0:2 -1:2 -0:2 1:"2" 1:2\0 10000:2 99999999999:2'
MISTAKES = {
    **dict.fromkeys([f"{label} qid:1" for label in ("x", "1.5", "nan", "1_0", "12345678901")], LABEL),
    **dict.fromkeys(["1 1:2", "1", "1 qid:"], QUERY),
    **dict.fromkeys([f"1 qid:1 {pair}" for pair in (*PAIRS.split(), "1:nan", "1:-inf", "1:1e39", "1:1e400")], FEATURE),
    **dict.fromkeys(["1 qid:1 1 :2", "1 qid:1 2:1 1:2", "1 qid:1 2:1 2:1", f"1 qid:1 {'9' * 5000}:2"], FEATURE),
    "1 qid:\udcff": "UTF-8",
    "1 qid:1 1:2 #docid = \udcff": "UTF-8",
    "1 qid:1 1:2 #docid = ": ID,
    f"1 qid:1 1:2 #docid = {'a' * 1001}": ID,
}
"""Lines up to where they are wrong, and what is expected there."""


@pytest.mark.parametrize("line", MISTAKES)
@pytest.mark.parametrize("more", ["", " 5:1 6:1 # docid = a"])
def test_mistakes(line, more):
    if "#" in line and more:
        pytest.skip("nothing comes after a comment")
    text = f"0 qid:1 1:1 2:1\n\n{line}{more}\n0 qid:1 1:1 2:1\n7\n".encode(errors="surrogateescape")
    mistake = parse(text)
    assert isinstance(mistake, LineError)
    assert mistake.line == 2
    assert mistake.expected.startswith(MISTAKES[line])
    assert mistake.expected.endswith(", as in `label qid:QUERY index:value … # docid = DOCUMENT`")
    shown = (line + more).encode(errors="surrogateescape")[:60].decode(errors="backslashreplace")
    assert ast.literal_eval(mistake.got) == shown.replace("\t", " ")


FLOAT = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
VALID = re.compile(rf" *(?:[-+]?[0-9]{{1,9}}(?:\.0*)? +qid:[^ #]+((?: +[0-9]+:{FLOAT})*) *)?(?:#.*)?", re.DOTALL)


def is_valid(line):
    """Whether a line without an id is one of SVMlight."""
    match = VALID.fullmatch(line)
    pairs = [pair.split(":") for pair in (match[1] or "").split()] if match else []
    indices = [int(index) for index, _ in pairs]
    finite = all(abs(float(value)) < 3.5e38 for _, value in pairs)
    return bool(match) and finite and indices == sorted({*indices}) and all(index < 10_000 for index in indices)


def test_what_is_read_is_what_a_regular_expression_takes():
    numbers = random.Random(1)
    line, wrong = "1 qid:7 0:0.5 2:-3e-2 13:4 # a\tb", 0
    for _ in range(400):
        place = numbers.randrange(len(line))
        mark = numbers.choice('0123456789:.eE+-# \t\rxnaif_,"\0q\x85')
        broken = line[:place] + mark + line[place + numbers.randrange(2) :]
        refused = isinstance(parse(broken.encode()), LineError)
        assert refused != is_valid(broken.encode().translate(BLANKS).decode()), broken
        wrong += refused
    assert 50 < wrong < 350
