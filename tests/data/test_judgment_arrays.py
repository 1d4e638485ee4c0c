"""Judgments as arrays are those of `read_qrels`, with its checks and messages."""

import gzip
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.data.judgment_arrays import read_judgment_arrays
from rerank.data.trec import read_qrels
from rerank.utils.errors import UserError
from tests.support.any_bytes import bounded, damaged

TREC, BEIR = b"q1 0 d1 1\nq1 0 d2 0\nq2 0 d1 2\n", b"query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t0\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("judgment-arrays")


def outcome(read, path):
    """What a reader makes of a file: its judgments in order, or the error."""
    try:
        return {query_id: list(judged.items()) for query_id, judged in read(path).items()}
    except UserError as error:
        return str(error)


def expect_same(path, content):
    path.write_bytes(content)
    expected, found = outcome(read_qrels, path), outcome(read_judgment_arrays, path)
    assert found == expected
    assert isinstance(found, str) or list(found) == list(expected)


grades = st.sampled_from(["0", "1", "1", "2", "-1", "+1", "01", "1_0", "x", "1.0", "0x1", str(10**30), ""])
ids = st.sampled_from(["q1", "q2", "d1", "d2", "#d", "é", "score"])
blanks = st.sampled_from([" "] * 6 + ["\t", "\t", "  ", "\v"])
ends = st.sampled_from(["\n"] * 8 + ["\r\n", " \n", "\n\n", " more\n", "", "\n# a comment\n", "\0\n"])
heads = st.sampled_from(["", "", "query-id\tcorpus-id\tscore\n", "# a comment\n", "\ufeff"])


@st.composite
def lines(draw):
    blank, columns = draw(blanks), [draw(ids), *draw(st.sampled_from([["0"], ["0"], []])), draw(ids), draw(grades)]
    return blank.join(columns) + draw(ends)


@bounded
@given(heads, st.lists(lines(), max_size=10))
def test_lines_of_any_form(folder, head, drawn):
    expect_same(folder / "qrels.txt", (head + "".join(drawn)).encode())


@bounded
@given(heads, st.lists(lines(), min_size=1, max_size=10), st.integers(8, 60))
def test_blocks_of_a_few_lines(folder, head, drawn, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rerank.data.text_lines.blocks.__defaults__", (block,))
        expect_same(folder / "qrels.txt", (head + "".join(drawn)).encode())


@bounded
@given(damaged(TREC) | damaged(BEIR))
def test_any_bytes(folder, content):
    expect_same(folder / "qrels.txt", content)


@pytest.fixture(scope="module")
def many():
    """Judgments of many queries, whose lines are scattered, in several blocks."""
    draw = random.Random(0)
    pairs = [(q, d) for q in range(3000) for d in draw.sample(range(900), 8)]
    draw.shuffle(pairs)
    return [f"q{q} 0 d{d} {d % 4 - 1}\n" for q, d in pairs]


@pytest.mark.parametrize("packed", [False, True])
def test_many_judgments(folder, many, packed):
    path = folder / "many.txt"
    text = "".join(many).encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    expected, found = read_qrels(path), read_judgment_arrays(path)
    assert found == expected
    assert list(found) == list(expected)
    assert "q0" in found
    assert "d0" not in found
    assert found.rows.nbytes + found.grades.nbytes <= 12 * len(many)


def test_judgments_that_disagree_far_from_each_other(folder, many):
    path = folder / "disagree.txt"
    *first, grade = many[3].split()
    path.write_text("".join([*many, many[5], " ".join([*first, str(int(grade) + 1)]), "\nmalformed\n"]))
    assert f"disagree.txt:{len(many) + 2}: expected one judgment of document {first[2]}" in outcome(read_qrels, path)
    assert outcome(read_judgment_arrays, path) == outcome(read_qrels, path)
