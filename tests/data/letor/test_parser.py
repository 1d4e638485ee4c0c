"""Text -> arrays: the values of well-formed lines, and the first line that is wrong."""

import random

import numpy as np
import pytest

from rerank.data.letor.line_errors import LineError, first_error
from rerank.data.letor.parser import Lines, parse


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


def test_values_are_what_numpy_reads():
    numbers = random.Random(0)
    texts = [
        f"{numbers.uniform(-1, 1) * 10 ** numbers.randint(-30, 30):{form}}"
        for form in (".6g", ".17g", "e")
        for _ in range(300)
    ]
    line = "0 qid:1 " + " ".join(f"{i}:{text}" for i, text in enumerate(texts, 1))
    np.testing.assert_allclose(read(line).values, np.array(texts, dtype=np.float64).astype(np.float32), rtol=1e-7)


MISTAKES = [
    ("x qid:1 1:2", "a whole number", "'x'"),
    ("1.5 qid:1 1:2", "a whole number", "'1.5'"),
    ("nan qid:1 1:2", "a whole number", "'nan'"),
    ("1_0 qid:1 1:2", "a whole number", "'1_0'"),
    ("12345678901 qid:1 1:2", "a whole number", "'12345678901'"),
    ("1 1:2", "qid:QUERY after the label", "'1:2'"),
    ("1", "qid:QUERY after the label", "the end of the line"),
    ("1 qid: 1:2", "qid:QUERY after the label", "'qid:'"),
    ("1 qid:\udcff 1:2", "a query id in UTF-8", r"'qid:\\xff'"),
    ("1 qid:1 1", "index:value", "'1'"),
    ("1 qid:1 1: 2:3", "index:value", "'1:'"),
    ("1 qid:1 1 :2", "index:value", "'1'"),
    ("1 qid:1 1:2:3", "index:value", "'1:2:3'"),
    ("1 qid:1 :2", "index:value", "':2'"),
    ("1 qid:1 1:a", "index:value", "'1:a'"),
    ("1 qid:1 1:0x10", "index:value", "'1:0x10'"),
    ("1 qid:1 0x1:10", "index:value", "'0x1:10'"),
    ("1 qid:1 1:1_0", "index:value", "'1:1_0'"),
    ("1 qid:1 1:1.2.3", "index:value", "'1:1.2.3'"),
    ("1 qid:1 1:1-2", "index:value", "'1:1-2'"),
    ("1 qid:1 1:1e", "index:value", "'1:1e'"),
    ("1 qid:1 1.0:2", "index:value", "'1.0:2'"),
    ("1 qid:1 -1:2", "index:value", "'-1:2'"),
    ("1 qid:1 -0:2", "index:value", "'-0:2'"),
    ('1 qid:1 1:"2"', "index:value", '1:"2"'),
    ("1 qid:1 1:2\0", "index:value", r"'1:2\x00'"),
    ("1 qid:1 10000:2", "a feature index from 0 to 9,999", "'10000:2'"),
    ("1 qid:1 99999999999:2", "a feature index from 0 to 9,999", "'99999999999:2'"),
    (f"1 qid:1 {'9' * 5000}:2", "a feature index from 0 to 9,999", "'9999"),
    ("1 qid:1 2:1 1:2", "indices that rise, so one above 2", "'1:2'"),
    ("1 qid:1 2:1 2:1", "indices that rise, so one above 2", "'2:1'"),
    ("1 qid:1 1:nan", "a finite value (float32) of feature 1", "'nan'"),
    ("1 qid:1 1:-inf", "a finite value (float32) of feature 1", "'-inf'"),
    ("1 qid:1 1:1e39", "a finite value (float32) of feature 1", "'1e39'"),
    ("1 qid:1 1:1e400", "a finite value (float32) of feature 1", "'1e400'"),
    ("1 qid:1 1:2 #docid = ", "a document id", "'#docid = '"),
    (f"1 qid:1 1:2 #docid = {'a' * 1001}", "a document id of at most 1,000 bytes", "'#docid = aaa"),
    ("1 qid:1 1:2 #docid = \udcff", "a document id in UTF-8", r"'\\xff'"),
]


@pytest.mark.parametrize(("line", "expected", "got"), MISTAKES)
def test_mistakes(line, expected, got):
    text = f"0 qid:1 1:1 2:1\n\n{line}\n0 qid:1 1:1 2:1\n7\n".encode(errors="surrogateescape")
    mistake = parse(text)
    assert isinstance(mistake, LineError)
    assert mistake.line == 2
    assert expected in mistake.expected
    assert got in mistake.got


def test_quick_and_exact_reading_agree_on_what_is_wrong():
    numbers = random.Random(1)
    line = "1 qid:7 0:0.5 2:-3e-2 13:4 #docid = a\tb"
    wrong = 0
    for _ in range(1600):
        place = numbers.randrange(len(line))
        mark = numbers.choice('0123456789:.eE+-# \t\rxnaif_,"\0q\x85')
        broken = (line[:place] + mark + line[place + numbers.randrange(2) :]).encode()
        read = parse(broken)  # raises AssertionError where the exact check sees nothing wrong
        exact = first_error(broken.translate(bytes.maketrans(b"\t\r\v\f", b"    ")).split(b"\n"))
        assert isinstance(read, LineError) == (exact is not None), broken
        wrong += exact is not None
    assert 200 < wrong < 1400
